#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "partition/aligned.h"
#include "partition/partition.h"

namespace pd {
namespace {

std::string Bytes(double bytes) { return FormatBytes(bytes); }
std::string Bytes(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

// "conv1 ... pool2 (6)"; where other stages' layers lie between, "conv1 ... pool2 (4, not all)".
std::string LayersOf(const Plan& plan, const StageReport& stage) {
  const auto count = static_cast<int>(stage.layers.size());
  const std::string first = Printable(plan.layers[stage.layers.front()].name);
  const std::string last = Printable(plan.layers[stage.layers.back()].name);
  if (count == 1) return first + " (1)";
  const bool all = stage.layers.back() - stage.layers.front() + 1 == count;
  return fmt::format("{} ... {} ({}{})", first, last, count, all ? "" : ", others between");
}

std::string WorkersOf(const StageReport& stage) {
  if (stage.workers.size() == 1) return fmt::format("{}", stage.workers[0]);
  const auto count = static_cast<int>(stage.workers.size());
  if (stage.workers.back() - stage.workers.front() + 1 != count) {
    return fmt::format("{} ({})", fmt::join(stage.workers, ","), count);
  }
  return fmt::format("{}-{} ({})", stage.workers.front(), stage.workers.back(), count);
}

std::string RateOf(double bytes_per_s) {
  return bytes_per_s >= kUnlimitedBytesPerSecond ? "an unlimited network"
                                                 : FormatBytes(bytes_per_s) + "/s";
}

std::string NetworkOf(const Cluster& cluster) {
  std::vector<Cluster::Level> levels;
  for (const Cluster::Level& level : cluster.levels) {
    if (level.workers > 1) levels.push_back(level);
  }
  if (levels.empty()) return "no network";
  if (levels.size() == 1) return RateOf(levels[0].bandwidth_bytes_per_s);
  std::string text;
  for (const Cluster::Level& level : levels) {
    text += fmt::format("{}{} at {}", text.empty() ? "" : " x ", level.workers,
                        RateOf(level.bandwidth_bytes_per_s));
  }
  return text;
}

std::string StageTable(const PartitionResult& result) {
  const auto recomputes = [](const StageReport& stage) { return stage.recompute; };
  const bool recompute = std::any_of(result.stages.begin(), result.stages.end(), recomputes);
  std::vector<TableRow> rows = {
      {"stage", "layers", "workers", "compute", "out", "all-reduce", "memory", "in flight"}};
  if (recompute) rows[0].push_back("recompute");
  for (size_t s = 0; s < result.stages.size(); ++s) {
    const StageReport& stage = result.stages[s];
    rows.push_back({fmt::format("{}", s), LayersOf(result.plan, stage), WorkersOf(stage),
                    FormatMs(stage.compute_ms), Bytes(stage.out_bytes),
                    Bytes(stage.all_reduce_bytes), Bytes(stage.memory_bytes),
                    fmt::format("{}", stage.in_flight)});
    if (recompute) rows.back().push_back(stage.recompute ? "yes" : "no");
  }
  return Aligned(rows, 2);
}

std::string PredictionTable(const PartitionResult& result) {
  const auto row = [](const std::string& name, const Prediction& prediction) {
    return TableRow{name, "", FormatMs(prediction.minibatch_ms),
                    fmt::format("{:.4g}", prediction.samples_per_s),
                    prediction.fits ? "" : "does not fit the memory"};
  };
  return Aligned({{"predicted", "", "minibatch", "samples/s"},
                  row("this plan", result.predicted),
                  row("data parallel", result.data_parallel),
                  row("model parallel", result.model_parallel),
                  row("one worker", result.one_worker)},
                 2);
}

}  // namespace

std::string FormatTable(const PartitionResult& result, const PartitionOptions& options) {
  const Plan& plan = result.plan;
  const int workers = options.cluster.workers();
  std::string out = fmt::format(
      "plan {}: batch {}, {}, {}, cost model {}, schedule {}\n\n", result.predicted.replicas,
      plan.batch_size, Counted(workers, "worker"), NetworkOf(options.cluster),
      options.cost_model == CostModel::kRuntime ? "runtime" : "arxiv", plan.schedule);
  out += StageTable(result) + "\n" + PredictionTable(result);
  out += fmt::format("\nbound by {}: at best {} a minibatch\n", result.predicted.bound.what,
                     FormatMs(result.predicted.bound.ms));
  if (!result.exact) {
    const double less = 100 * (1 - result.lower_bound_ms / result.bottleneck_ms);
    out += fmt::format(
        "the search was not exact: under the cost model this plan needs {}, no plan less than {} "
        "({} % less)\n",
        FormatMs(result.bottleneck_ms), FormatMs(result.lower_bound_ms),
        less < 0.05 ? "under 0.1" : fmt::format("{:.1f}", less));
  }
  if (result.few_rivals) {
    out += fmt::format("a large graph: compared with only {}, few of them on fewer workers\n",
                       Counted(result.rivals, "other plan"));
  }
  if (result.idle_workers > 0) {
    // With less choice, by a strategy, cuts or a memory limit, more workers might have been faster.
    const bool best = options.strategy == Strategy::kAuto && !options.cluster.memory_bytes &&
                      options.cut_after.empty() && options.replicas.empty() && result.exact &&
                      !result.few_rivals;
    out += fmt::format("{} of {} workers stay idle{}\n", result.idle_workers, workers,
                       best ? ": more would not be faster" : "");
  }
  return out;
}

std::string FormatRun(const PartitionResult& result, const SimulatedRun& run, int64_t minibatches) {
  std::vector<TableRow> rows = {
      {"worker", "stage", "compute", "idle", "sent", "received", "memory"}};
  for (const auto& worker : run.workers) {
    rows.push_back({fmt::format("{}", worker.id), fmt::format("{}", worker.stage),
                    FormatMs(worker.compute_ms),
                    fmt::format("{:.1f} %", 100 * (1 - worker.compute_ms / run.total_ms)),
                    Bytes(worker.bytes_sent), Bytes(worker.bytes_received),
                    Bytes(result.stages[static_cast<size_t>(worker.stage)].memory_bytes)});
  }
  const double per_s =
      static_cast<double>(minibatches * result.plan.batch_size) * 1000 / run.total_ms;
  return fmt::format("\nsimulated from a cold start: {} in {}, {:.4g} samples/s\n\n{}",
                     Counted(minibatches, "minibatch", "minibatches"), FormatMs(run.total_ms),
                     per_s, Aligned(rows, 2));
}

}  // namespace pd
