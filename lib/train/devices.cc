#include "train/devices.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "base/error.h"

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

std::unique_ptr<Backend> MakeTrainingBackend(const TrainConfig& config, int local_rank) {
  BackendOptions options;
  options.threads = static_cast<int>(config.threads);
  options.local_rank = local_rank;
  options.tf32 = config.tf32;
  auto backend = MakeBackend(config.device, options);
  PD_REQUIRE(backend->dtype() == DType::kF32, "--device: expected one that trains in f32, found {}",
             config.device);
  return backend;
}

void DescribeDevice(const Backend& backend, RankInfo& info) {
  info.device = std::string(backend.kind());
  info.device_id = backend.device_id();
  if (backend.on_device()) info.device_name = backend.name();
  info.threads = backend.threads();
}

std::vector<std::string> DeviceWarnings(const std::vector<RankInfo>& ranks) {
  std::map<std::pair<std::string, std::string>, std::vector<const RankInfo*>> sharers;
  for (const RankInfo& r : ranks) {
    if (!r.device_id.empty()) sharers[{r.machine, r.device_id}].push_back(&r);
  }
  std::vector<std::string> warnings;
  for (const auto& [device, sharing] : sharers) {
    if (sharing.size() == 1) continue;
    std::vector<int> numbers;
    for (const RankInfo* r : sharing) numbers.push_back(r->rank);
    warnings.push_back(fmt::format(
        "ranks {} on {} share one GPU, {} ({}): they wait for each other", fmt::join(numbers, ", "),
        sharing[0]->host, sharing[0]->device_name, device.second));
  }
  return warnings;
}

std::vector<std::string> DeviceNotes(const std::vector<RankInfo>& ranks, std::string_view device,
                                     bool direct) {
  std::vector<std::string> notes;
  std::set<std::string> taken;
  bool any = false;
  for (const RankInfo& r : ranks) {
    if (r.stage < 0) continue;
    taken.insert(r.device);
    any = any || !r.device_id.empty();
  }
  if (device == "auto") {
    notes.push_back(fmt::format("device auto: {}", fmt::join(taken, " and ")));
  }
  if (any) {
    notes.push_back(direct ? "messages between stages: from and to GPU memory (CUDA-aware MPI)"
                           : "messages between stages: through pinned host memory");
  }
  return notes;
}

}  // namespace pd
