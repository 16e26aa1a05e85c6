// pd-train: trains the plan's model over the workers of an MPI job. Flags become TrainArguments;
// lib/train does the rest.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <map>
#include <new>

#include "backend/registry.h"
#include "base/log.h"
#include "base/version.h"
#include "command_line.h"
#include "train/trainer.h"
#include "transport/mpi/mpi_session.h"
#include "transport/mpi/mpi_transport.h"

namespace {

constexpr const char* kExamples = R"(examples:
  mpirun -np 2 pd-train plan.json --data /usr/share/datasets/fashion-mnist --epochs 3
  pd-profile models/mini.json -b 64 | pd-partition - -n 2 --bandwidth 1Gbps | mpirun -np 2 pd-train - --data DIR
  pd-train plan.json --check
exit status: 0 done; 1 failed while running; 2 bad input or usage; 3 --target-accuracy not reached)";

struct Flag {
  const char* name;
  const char* value;
  const char* help;
};

// Each is a key of config/1 too, with _ for -.
constexpr Flag kFlags[] = {
    {"data", "DIR", "data set: a directory, or synthetic"},
    {"epochs", "N", "passes over the training samples (1)"},
    {"minibatches", "N", "minibatches of each epoch (all)"},
    {"eval-every", "N", "evaluate every N minibatches too, not only at epoch ends"},
    {"target-accuracy", "X", "stop at this test accuracy; exit status 3 if it is not reached"},
    {"lr", "X", "learning rate (0.01)"},
    {"momentum", "X", "momentum of SGD (0.9)"},
    {"weight-decay", "X", "weight decay of SGD (0)"},
    {"schedule", "NAME", "schedule (the plan's; 1f1b)"},
    {"device", "NAME",
     "auto, ref, cpu, cuda, cuda:N or timed; auto takes a GPU where there is one (auto)"},
    {"threads", "N", "threads a worker (1)"},
    {"seed", "N", "seed of weights, order and dropout (1)"},
    {"metrics", "FILE", "JSON Lines of metrics (standard output)"},
    {"log-every", "N", "minibatches between train events (10)"},
    {"trace", "FILE", "Chrome trace of every action (chrome://tracing, Perfetto)"},
    {"checkpoint", "DIR", "write a checkpoint at each epoch's end"},
    {"progress", "WHEN", "progress line: auto, always or never (auto)"},
    {"stall-timeout", "S", "seconds that a worker waits for another before the run fails (300)"},
};

// What the command line says, or nothing: CLI11 has printed help, version or a complaint, and
// `status` is set.
std::optional<pd::TrainArguments> ParseCommandLine(int argc, char** argv, bool quiet, int& status,
                                                   bool& check) {
  CLI::App app("Trains the model of a plan over the ranks of an MPI job, one rank a worker.",
               "pd-train");
  app.footer(kExamples);
  pd::TrainArguments arguments;
  app.add_option("plan", arguments.plan, "plan/1 file, - for standard input")
      ->required()
      ->type_name("PLAN");
  app.add_option("--config", arguments.config, "config/1 file; flags win over it")
      ->type_name("FILE");
  std::map<std::string, std::string> values;
  for (const Flag& flag : kFlags) {
    app.add_option(std::string("--") + flag.name, values[flag.name], flag.help)
        ->type_name(flag.value);
  }
  app.add_flag("--check", check,
               "check the plan, print ranks, memory and minibatches in flight, and end");
  bool tf32 = false;
  app.add_flag("--tf32", tf32, "on a GPU: round products to TF32, which is faster");
  bool resume = false;
  std::string accumulate;
  app.add_flag("--resume", resume, "not available yet");
  app.add_option("--accumulate", accumulate, "not available yet")->type_name("N");
  app.set_version_flag("--version", [] {
    return pd::VersionLine("pd-train", fmt::format("{}, {}, CLI11 {}", pd::MpiLibraryName(),
                                                   pd::BackendLibraries(), CLI11_VERSION));
  });
  try {
    app.parse(argc, argv);
    if (resume) throw CLI::ValidationError("--resume is not available yet");
    if (!accumulate.empty()) throw CLI::ValidationError("--accumulate is not available yet");
  } catch (const CLI::Success& e) {
    status = quiet ? 0 : app.exit(e);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    if (!quiet) pd::Log("{}", pd::Complaint(app, e));
    status = 2;
    return std::nullopt;
  }
  for (const Flag& flag : kFlags) {
    if (app.count(std::string("--") + flag.name) == 0) continue;
    std::string key = flag.name;
    std::replace(key.begin(), key.end(), '-', '_');
    arguments.flags.emplace_back(key, values[flag.name]);
  }
  if (tf32) arguments.flags.emplace_back("tf32", "true");
  arguments.check = check;
  return arguments;
}

std::string Environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

int StatusOf(const pd::Error& e) { return e.code() == pd::ErrorCode::kInvalidInput ? 2 : 1; }

int Check(const pd::TrainArguments& arguments) {
  try {
    pd::CheckPlan(arguments);
    return 0;
  } catch (const pd::Error& e) {
    pd::Log("{}", e.what());
    return StatusOf(e);
  } catch (const std::exception& e) {
    pd::Log("{}", e.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  // mpirun and srun set these for their ranks. The others say nothing that rank 0 says too, unless
  // mpirun was given several command lines.
  const std::string rank =
      Environment("OMPI_COMM_WORLD_RANK", Environment("SLURM_PROCID", "0").c_str());
  const bool first = rank == "0";
  const bool speaks = first || Environment("OMPI_NUM_APP_CTX", "1") != "1";
  std::signal(SIGPIPE, SIG_IGN);  // a reader of metrics that goes away is an error like any other
  pd::SetLogPrefix(first ? "pd-train" : "pd-train: rank " + rank);
  int status = 0;
  bool check = false;
  const auto arguments = ParseCommandLine(argc, argv, !speaks, status, check);
  if (!arguments) return status;
  if (check) return first ? Check(*arguments) : 0;
  try {
    pd::MpiSession session;
    pd::MpiTransport transport(session);
    // The other ranks wait for this one: end them before anything unwinds.
    const auto fail = [&](const std::exception& e) {
      const auto* known = dynamic_cast<const pd::Error*>(&e);
      const bool memory = dynamic_cast<const std::bad_alloc*>(&e) != nullptr;
      pd::Log("{}", memory ? "out of memory" : e.what());
      session.Abort(known != nullptr ? StatusOf(*known) : 1);
    };
    try {
      return pd::RunTraining(*arguments, transport, fail);
    } catch (const pd::CollectiveError& e) {
      if (transport.rank() == 0) pd::Log("{}", e.what());
      return StatusOf(e);
    } catch (const std::exception& e) {
      fail(e);
    }
  } catch (const pd::Error& e) {
    pd::Log("{}", e.what());
    return StatusOf(e);
  }
}
