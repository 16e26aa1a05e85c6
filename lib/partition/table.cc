#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "partition/partition.h"

namespace pd {
namespace {

using Row = std::vector<std::string>;

// Characters, not bytes: names are UTF-8.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Columns as wide as their widest cell; the first two left-aligned, the others right-aligned.
std::string Aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], Width(row[c]));
    }
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - Width(row[c]), ' ');
      line += (c < 2 ? row[c] + pad : pad + row[c]) + "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string LayersOf(const Plan& plan, const StageReport& stage) {
  const std::string& first = plan.layers[stage.begin].name;
  const std::string& last = plan.layers[stage.end - 1].name;
  if (stage.end - stage.begin == 1) return first + " (1)";
  return fmt::format("{} ... {} ({})", first, last, stage.end - stage.begin);
}

std::string WorkersOf(const StageReport& stage) {
  if (stage.workers.size() == 1) return fmt::format("{}", stage.workers[0]);
  return fmt::format("{}-{} ({})", stage.workers.front(), stage.workers.back(),
                     stage.workers.size());
}

std::string Milliseconds(double ms) { return fmt::format("{:.4g} ms", ms); }

std::string NetworkOf(const PartitionOptions& options) {
  double bandwidth = kUnlimitedBytesPerSecond;
  for (const Cluster::Level& level : options.cluster.levels) {
    if (level.workers > 1) bandwidth = std::min(bandwidth, level.bandwidth_bytes_per_s);
  }
  if (bandwidth >= kUnlimitedBytesPerSecond) return "an unlimited network";
  return FormatBytes(bandwidth) + "/s";
}

}  // namespace

std::string FormatTable(const PartitionResult& result, const PartitionOptions& options) {
  const Plan& plan = result.plan;
  std::string replicas;
  for (const StageReport& stage : result.stages) {
    replicas += fmt::format("{}{}", replicas.empty() ? "" : "-", stage.workers.size());
  }
  const int workers = options.cluster.workers();
  std::string out =
      fmt::format("plan {}: batch {}, {} worker{}, {}, cost model {}, schedule {}\n\n", replicas,
                  plan.batch_size, workers, workers == 1 ? "" : "s", NetworkOf(options),
                  options.cost_model == CostModel::kRuntime ? "runtime" : "arxiv", plan.schedule);
  std::vector<Row> rows = {
      {"stage", "layers", "workers", "compute", "out", "all-reduce", "memory", "in flight"}};
  for (size_t s = 0; s < result.stages.size(); ++s) {
    const StageReport& stage = result.stages[s];
    rows.push_back(
        {fmt::format("{}", s), LayersOf(plan, stage), WorkersOf(stage),
         Milliseconds(stage.compute_ms), FormatBytes(static_cast<double>(stage.out_bytes)),
         FormatBytes(stage.all_reduce_bytes), FormatBytes(static_cast<double>(stage.memory_bytes)),
         fmt::format("{}", stage.in_flight)});
  }
  out += Aligned(rows) + "\n";
  const auto row = [&](const std::string& name, const Prediction& prediction) {
    return Row{name, "", Milliseconds(prediction.minibatch_ms),
               fmt::format("{:.4g}", prediction.samples_per_s),
               prediction.fits ? "" : "does not fit the memory"};
  };
  out += Aligned({{"predicted", "", "minibatch", "samples/s"},
                  row("this plan", result.predicted),
                  row("data parallel", result.data_parallel),
                  row("model parallel", result.model_parallel),
                  row("one worker", result.one_worker)});
  out += fmt::format("\nbound by {}: at best {} a minibatch\n", result.bound_by,
                     Milliseconds(result.bottleneck_ms));
  if (result.idle_workers > 0) {
    // With less choice, by a strategy or a memory limit, more workers might have been faster.
    const bool best = options.strategy == Strategy::kAuto && !options.cluster.memory_bytes;
    out += fmt::format("{} of {} workers stay idle{}\n", result.idle_workers, workers,
                       best ? ": more would not be faster" : "");
  }
  return out;
}

}  // namespace pd
