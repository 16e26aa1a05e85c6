#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "partition/cost.h"
#include "partition/pipeline.h"
#include "partition/resources.h"
#include "partition/simulator.h"
#include "plan/plan.h"

namespace pd {

enum class Strategy {
  kAuto,           ///< The best of all plans.
  kDataParallel,   ///< One stage on all workers.
  kModelParallel,  ///< Straight's cuts with one minibatch in flight.
  kStraight,       ///< One worker a stage.
};

struct PartitionOptions {
  Cluster cluster;  ///< memory_bytes limits every worker.
  Strategy strategy = Strategy::kAuto;
  CostModel cost_model = CostModel::kRuntime;
  std::string schedule = "1f1b";
  std::string command;                 ///< Written into the plan.
  std::vector<std::string> cut_after;  ///< Layers behind which a stage ends.
  std::vector<int> replicas;           ///< Of the stages, hence their number; empty: what is best.
  /// Stages that do not fit the memory may run their forward passes twice, if they then fit.
  bool allow_recompute = true;
  bool compare = true;  ///< Predict data parallelism, model parallelism, … beside the plan.
  std::function<void(const std::string&)> progress;  ///< Told what is being done, or empty.
};

/// Words of the command line. Throw kInvalidInput with the list of known ones.
Strategy ParseStrategy(std::string_view text);
CostModel ParseCostModel(std::string_view text);
void CheckSchedule(std::string_view name);

/// A row of the table: what a stage costs. Bytes of a minibatch, or for all_reduce of a round, both
/// ways each.
struct StageReport {
  std::vector<int> layers;  ///< Indices, ascending.
  std::vector<int> workers;
  double compute_ms = 0;  ///< Of the slowest replica for one of its minibatches.
  int64_t out_bytes = 0;
  double all_reduce_bytes = 0;
  int64_t memory_bytes = 0;
  int in_flight = 1;
  bool recompute = false;
};

/// What a way of training is predicted to do.
struct Prediction {
  double minibatch_ms = 0;
  double samples_per_s = 0;
  /// The memory limit; a prediction for what does not fit tells what it would do.
  bool fits = true;
  std::string replicas;  ///< "7-1", as FormatReplicas writes it.
  Bottleneck bound;      ///< What no schedule of it can beat.
  /// With one minibatch in flight: stages of which one works at a time, since they wait for
  /// gradients, and the last. Stages that get none go ahead.
  int stages_in_turn = 0;
};

struct PartitionResult {
  Plan plan;
  std::vector<StageReport> stages;
  double bottleneck_ms = 0;   ///< Of the plan under the cost model.
  bool exact = true;          ///< Whether lower_bound_ms is the smallest of any plan.
  double lower_bound_ms = 0;  ///< No plan has a smaller one than this.
  Prediction predicted, data_parallel, model_parallel, straight, one_worker;
  int idle_workers = 0;
  int rivals = 0;  ///< Other plans that the winner was compared with: kAuto with `runtime`.
  /// Whether the graph is so large that few of them were looked for on fewer workers: one of those
  /// left out may be faster.
  bool few_rivals = false;
  /// What the simulator knows of the plan.
  PipelineShape shape;
  SimulatedPipeline pipeline;
};

/// Plans the training of a profiled model. kAuto under `runtime`: of the search's plan, data
/// parallelism, the best straight plan, plans for slower links, each also on fewer workers, and one
/// worker, where they fit the memory and the user's cuts, the one with the smallest predicted
/// period (up to a thousandth that with fewer workers), because the cost that the search minimises
/// leaves out waiting. What is guaranteed: docs/planner.md. `runtime`: predictions are simulated
/// periods of the action lists; `arxiv`: they are its formulas. Throws kInvalidInput: an unknown
/// schedule or layer, cuts that no plan has, no plan that fits the memory (names the tightest
/// layer, its stage's need and the smallest limit that works). Source: arXiv 1806.03377 §3.2; see
/// cost.h and search.h for what differs.
PartitionResult Partition(const Profile& profile, const PartitionOptions& options);

/// The result as a table for people.
std::string FormatTable(const PartitionResult& result, const PartitionOptions& options);

/// What a faster link, a worker more or fewer, and more memory would change (planned anew on the
/// changed cluster), and what bounds the plans that lost. For people.
std::string Explain(const Profile& profile, const PartitionOptions& options,
                    const PartitionResult& result);

/// A simulated run of the plan's first `minibatches` minibatches from a cold start, as a table.
std::string FormatRun(const PartitionResult& result, const SimulatedRun& run, int64_t minibatches);

}  // namespace pd
