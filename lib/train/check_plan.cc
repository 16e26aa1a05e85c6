// pd-train --check: what a run would say at its start, found out in this process alone.
#include <fmt/format.h>

#include <map>

#include "base/host.h"
#include "base/log.h"
#include "train/devices.h"
#include "train/trainer.h"

namespace pd {
namespace {

// The devices that the workers of one machine take, by local rank; after the last comes the first
// again.
std::vector<RankInfo> LocalDevices(const TrainConfig& config, int workers) {
  std::vector<RankInfo> devices;
  for (int local = 0; local < workers; ++local) {
    RankInfo next;
    MakeTrainingBackend(config, local, next);
    if (local > 0 && next.device_id == devices[0].device_id) break;
    devices.push_back(next);
    if (next.device_id.empty()) break;  // processors are alike
  }
  return devices;
}

// Of a worker of each stage.
std::vector<int64_t> MemoryOfStages(const PipelineSpec& spec, Backend& backend) {
  const size_t own = backend.device_bytes();
  std::vector<int64_t> memory;
  for (int s = 0; s < spec.cut->num_stages(); ++s) {
    const size_t before = backend.device_bytes();
    const StageSetup setup(spec, backend, s);  // operations may take memory, too
    const size_t bytes = own + backend.device_bytes() - before + setup.Memory(spec).of_backend();
    memory.push_back(static_cast<int64_t>(bytes));
  }
  return memory;
}

}  // namespace

void CheckPlan(const TrainArguments& arguments) {
  const Agreement agreement = ReadArguments(arguments);
  const Cut cut = CutOf(agreement);
  const PipelineSpec spec = MakeSpec(agreement, cut);
  const int world = agreement.plan.world_size();
  const int machine_ranks = spec.machine_ranks > 1 ? spec.machine_ranks : world;
  const std::vector<RankInfo> devices = LocalDevices(agreement.config, machine_ranks);
  RankInfo first;
  const std::unique_ptr<Backend> backend = MakeTrainingBackend(agreement.config, 0, first);
  const std::vector<int64_t> memory = MemoryOfStages(spec, *backend);
  std::map<int, size_t> workers;  // so far, by machine
  std::vector<RankInfo> ranks;
  for (int rank = 0; rank < world; ++rank) {
    RankInfo info;
    if (const auto role = RoleOf(agreement.plan, rank)) {
      const int machine = rank / machine_ranks;
      info = devices[workers[machine]++ % devices.size()];
      info.machine = fmt::format("machine {}", machine);
      info.stage = role->first;
      info.replica = role->second;
      info.cores = UsableCores();
      info.host_cores = HostCores();
      info.in_flight = spec.shape.stages[static_cast<size_t>(role->first)].in_flight;
      info.memory_bytes = memory[static_cast<size_t>(role->first)];
    }
    info.rank = rank;
    info.host = '-';
    ranks.push_back(info);
  }
  Log("{}: the plan is valid; run it with mpirun -np {}\n{}", arguments.plan, world,
      StartTable(agreement.plan, ranks));
  for (RankInfo& info : ranks) info.host = info.machine;
  for (const std::string& note : DeviceNotes(ranks, agreement.config.device)) Log("{}", note);
  for (const std::string& warning : DeviceWarnings(ranks, agreement.config.tf32))
    Warn("{}", warning);
  for (const std::string& warning : MemoryWarnings(agreement.plan, ranks)) Warn("{}", warning);
  for (const std::string& warning : CostWarnings(agreement, *backend)) Warn("{}", warning);
}

}  // namespace pd
