#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <string>

namespace pd {

/// What mpirun or srun tells a process of its job, before MPI starts.
struct JobRank {
  std::string rank = "0";
  /// The others say nothing that rank 0 says too, unless mpirun was given several command lines.
  bool speaks = true;

  bool is_first() const { return rank == "0"; }
  /// Of log lines: rank 0 speaks for the job.
  std::string LogPrefix(const char* program) const {
    return is_first() ? program : fmt::format("{}: rank {}", program, rank);
  }
};

inline JobRank FindJobRank() {
  const auto environment = [](const char* name, const std::string& otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::string(value) : otherwise;
  };
  JobRank job;
  job.rank = environment("OMPI_COMM_WORLD_RANK", environment("SLURM_PROCID", "0"));
  job.speaks = job.is_first() || environment("OMPI_NUM_APP_CTX", "1") != "1";
  return job;
}

}  // namespace pd
