#include "train/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "backend/registry.h"
#include "base/error.h"
#include "base/units.h"

namespace pd {

std::vector<std::string> CostWarnings(const Agreement& agreement, const Backend& backend) {
  const Model& model = *agreement.model;
  const Plan& plan = agreement.plan;
  std::vector<std::string> warnings;
  if (backend.kind() == "timed") return warnings;  // it takes the costs as they are
  if (plan.device &&
      (plan.device->kind != backend.kind() || plan.device->threads != backend.threads())) {
    warnings.push_back(
        fmt::format("the plan's costs are of another device: {} with {} thread(s), but this run "
                    "takes {} with {}",
                    plan.device->kind, plan.device->threads, backend.kind(), backend.threads()));
  }
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    const Model::Node& node = model.layers()[l];
    if (node.layer->is_loss()) continue;
    const auto expected = static_cast<int64_t>(
        model.spec(model.OutputOf(static_cast<int>(l))).Bytes(plan.batch_size));
    const int64_t found = plan.layers[l].activation_bytes;
    if (found == expected) continue;
    warnings.push_back(
        fmt::format("the plan's costs are of another batch size: layer \"{}\": activation_bytes: "
                    "expected {} at "
                    "batch_size {}, found {}",
                    plan.layers[l].name, expected, plan.batch_size, found));
    break;
  }
  return warnings;
}

std::unique_ptr<Backend> MakeTrainingBackend(const TrainConfig& config, int local_rank,
                                             RankInfo& info) {
  BackendOptions options;
  options.threads = static_cast<int>(config.threads);
  options.local_rank = local_rank;
  options.tf32 = config.tf32;
  const auto [kind, broken_cuda] =
      config.device == "auto" ? FindAutoDevice() : AutoDevice{config.device, {}};
  auto backend = MakeBackendOrTimed(kind, options);
  PD_REQUIRE(backend->dtype() == DType::kF32, "--device: expected one that trains in f32, found {}",
             config.device);
  info.device = std::string(backend->kind());
  info.device_id = backend->device_id();
  info.label = backend->label();
  info.instructions = backend->instructions();
  info.broken_cuda = broken_cuda;
  info.threads = backend->threads();
  return backend;
}

void CompareReplicas(const std::vector<RankInfo>& ranks) {
  std::map<int, const RankInfo*> firsts;  // by stage
  for (const RankInfo& r : ranks) {
    if (r.stage < 0) continue;
    const RankInfo& first = *firsts.emplace(r.stage, &r).first->second;
    const bool one_kind = r.device == first.device;
    if (one_kind && r.weights == first.weights) continue;
    const auto describe = [](const RankInfo& rank) {
      return fmt::format("rank {} on {} ({}{}{})", rank.rank, rank.host, rank.label,
                         rank.instructions.empty() ? "" : " with ", rank.instructions);
    };
    const std::string replicas =
        fmt::format("stage {}: expected replicas on like devices, found {} and {}", r.stage,
                    describe(first), describe(r));
    std::string help = "start all ranks with the same --device";
    if (one_kind && r.instructions != first.instructions) {
      help = fmt::format(
          "they store weights in other orders; mpirun -x DNNL_MAX_CPU_ISA=…, with the lower of {} "
          "and {}, makes them alike",
          first.instructions, r.instructions);
    } else if (one_kind) {
      help = "they store weights in other orders; give all ranks the same libraries";
    }
    throw CollectiveError(ErrorCode::kInvalidInput, fmt::format("{}: {}", replicas, help));
  }
}

std::vector<std::string> DeviceWarnings(const std::vector<RankInfo>& ranks, bool tf32) {
  std::map<std::pair<std::string, std::string>, std::vector<const RankInfo*>> sharers;
  for (const RankInfo& r : ranks) {
    if (!r.device_id.empty()) sharers[{r.machine, r.device_id}].push_back(&r);
  }
  std::vector<std::string> warnings;
  if (tf32 && sharers.empty()) warnings.emplace_back(kTf32WithoutGpu);
  for (const auto& [device, sharing] : sharers) {
    if (sharing.size() == 1) continue;
    std::vector<int> numbers;
    for (const RankInfo* r : sharing) numbers.push_back(r->rank);
    warnings.push_back(
        fmt::format("ranks {} on {} share one GPU, {} ({}): they wait for each other",
                    fmt::join(numbers, ", "), sharing[0]->host, sharing[0]->label, device.second));
  }
  return warnings;
}

std::vector<std::string> MemoryWarnings(const Plan& plan, const std::vector<RankInfo>& ranks) {
  if (!plan.cluster || !plan.cluster->memory_bytes) return {};
  const int64_t limit = *plan.cluster->memory_bytes;
  std::vector<std::string> larger;
  for (const RankInfo& r : ranks) {
    if (r.stage < 0 || r.memory_bytes <= limit + limit / 100) continue;
    larger.push_back(
        fmt::format("rank {} {}", r.rank, FormatBytes(static_cast<double>(r.memory_bytes))));
  }
  if (larger.empty()) return {};
  return {fmt::format("memory beyond the {} that the plan allows a worker: {}",
                      FormatBytes(static_cast<double>(limit)), fmt::join(larger, ", "))};
}

std::vector<std::string> DeviceNotes(const std::vector<RankInfo>& ranks, std::string_view device) {
  std::set<std::string> taken;
  std::map<std::string, std::vector<int>> broken;  // ranks by reason
  for (const RankInfo& r : ranks) {
    if (r.stage < 0) continue;
    taken.insert(r.device);
    if (!r.broken_cuda.empty()) broken[r.broken_cuda].push_back(r.rank);
  }
  if (device != "auto") return {};
  std::string note = fmt::format("device auto: {}", fmt::join(taken, " and "));
  for (const auto& [reason, who] : broken) {
    note += fmt::format("; rank{} {} cannot use CUDA: {}", who.size() == 1 ? "" : "s",
                        fmt::join(who, ", "), reason);
  }
  return {note};
}

std::vector<std::string> MessageNotes(const std::vector<RankInfo>& ranks, bool direct) {
  const bool any = std::any_of(ranks.begin(), ranks.end(),
                               [](const RankInfo& r) { return !r.device_id.empty(); });
  if (!any) return {};
  return {direct ? "messages between stages: from and to GPU memory (CUDA-aware MPI)"
                 : "messages between stages: through pinned host memory"};
}

}  // namespace pd
