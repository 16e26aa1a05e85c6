#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "partition/cost.h"
#include "plan/plan.h"

namespace pd {

enum class Strategy {
  kAuto,           ///< The best of all plans.
  kDataParallel,   ///< One stage on all workers.
  kModelParallel,  ///< Straight's cuts with one minibatch in flight.
  kStraight,       ///< One worker a stage.
};

struct PartitionOptions {
  Cluster cluster;  ///< One level; memory_bytes limits every worker.
  Strategy strategy = Strategy::kAuto;
  CostModel cost_model = CostModel::kRuntime;
  std::string schedule = "1f1b";
  std::string command;  ///< Written into the plan.
};

/// Words of the command line. Throw kInvalidInput with the list of known ones.
Strategy ParseStrategy(std::string_view text);
CostModel ParseCostModel(std::string_view text);
void CheckSchedule(std::string_view name);

/// A row of the table: what a stage costs. Bytes of a minibatch, or for all_reduce of a round, both
/// ways each.
struct StageReport {
  int begin = 0, end = 0;  ///< Layers.
  std::vector<int> workers;
  double compute_ms = 0;  ///< Of one replica for one of its minibatches.
  int64_t out_bytes = 0;
  double all_reduce_bytes = 0;
  int64_t memory_bytes = 0;
  int in_flight = 1;
};

/// What a way of training is predicted to do.
struct Prediction {
  double minibatch_ms = 0;
  double samples_per_s = 0;
  bool fits =
      true;  ///< The memory limit; a prediction for what does not fit tells what it would do.
};

struct PartitionResult {
  Plan plan;
  std::vector<StageReport> stages;
  double bottleneck_ms = 0;  ///< Of the plan under the cost model: what the search minimised.
  std::string bound_by;      ///< The resource behind it: "compute of stage 0".
  Prediction predicted, data_parallel, model_parallel, one_worker;
  int idle_workers = 0;
};

/// Plans the training of a profiled model. kAuto under `runtime`: of the search's plan, data
/// parallelism on all workers and one worker, where they fit the memory, the one with the smallest
/// predicted period (then with fewer workers), because the bound that the search minimises leaves
/// out latency and waiting. `runtime`: predictions are simulated periods of the
/// action lists, latency included; `arxiv`: they are its formulas. Throws kInvalidInput: a cluster
/// of several levels or unequal speeds (not available yet), an unknown schedule, no plan that fits
/// the memory (names the tightest layer, its stage's need and the smallest limit that works).
/// Source: arXiv 1806.03377 §3.2; see cost.h and search.h for what differs.
PartitionResult Partition(const Profile& profile, const PartitionOptions& options);

/// The result as a table for people.
std::string FormatTable(const PartitionResult& result, const PartitionOptions& options);

}  // namespace pd
