#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "partition/cost.h"

namespace pd {

/// A stage of a candidate plan, on workers [first_worker, first_worker + replicas).
struct StageChoice {
  std::vector<int> layers;  ///< Indices, ascending; not always consecutive.
  int first_worker = 0;
  int replicas = 1;
  bool recompute = false;  ///< Keeps only its inputs, and runs its forward pass once more.
  /// Replica r's worker; empty: first_worker + r. Only hierarchy.h places replicas otherwise.
  std::vector<int> workers = {};

  int worker(int replica) const {
    return workers.empty() ? first_worker + replica : workers[static_cast<size_t>(replica)];
  }
  bool operator==(const StageChoice&) const = default;
};

struct SearchOptions {
  CostRule rule;
  int max_workers = 1;    ///< With several levels or speeds: at most as many as they name.
  bool replicate = true;  ///< False: one worker a stage.
  /// True: memory counts one minibatch in flight everywhere; false: ⌈(Σ_{t≥s} r_t)/r_s⌉ at stage s.
  bool one_in_flight = false;
  /// Of each worker; stages that need more are no candidates.
  std::optional<int64_t> memory_bytes;
  /// Stages that need more memory may recompute, if they then fit.
  bool allow_recompute = false;
  /// Layers whose consumers must all be in later stages than the layer itself.
  std::vector<int> cut_after;
  /// Replicas of the stages in order, hence their number; empty: as the search finds best.
  std::vector<int> replicas;
  /// Plans that cost more are no candidates; where several levels meet `runtime`, some may be.
  double most_ms = std::numeric_limits<double>::infinity();
  /// Limits of the work, past which a result may be inexact; 0: chosen for seconds. Ideals: see
  /// Ideals; steps: placements that are tried where links of machines couple stages.
  int max_ideals = 0;
  int64_t max_steps = 0;
  /// Steps that all searches of a run may take yet, lowered by those that this one takes; null: no
  /// more than its own limit. Once they are spent, a search returns what its bounds suggest.
  int64_t* steps_left = nullptr;
};

struct SearchResult {
  std::vector<StageChoice> stages;
  double bottleneck_ms = 0;  ///< The largest cost under the rule.
  /// No plan has a smaller bottleneck than this; equal to bottleneck_ms if `exact`.
  double lower_bound_ms = 0;
  /// Whether the plan is proven to be the best. False where a limit was met.
  bool exact = true;
  int ideals = 0;  ///< That were looked at.
};

/// The plan with the smallest bottleneck among all chains of ideals (ideals.h) as borders, all
/// replica counts and all places: stage s takes consecutive workers behind those of stage s − 1,
/// and any workers may stay idle. Ties: fewer workers in use, then fewer stages, then stage by
/// stage from the first: the earlier border (ideals.h), fewer replicas, the lower first worker.
/// Nothing if no plan fits the memory and the user's cuts and replicas. Where workers are alike,
/// none between stages is idle. Source: arXiv 1806.03377 §3.2, A(j, m). Differs: ideals instead of
/// positions in a chain; from the last stage to the first, since the workers behind a stage fix its
/// minibatches in flight, hence its memory; idle workers, speeds, `runtime` costs. Several levels:
/// links of machines (links.h) couple stages, so the recurrence only gives bounds there, and
/// placements are searched under them; `arxiv`: hierarchy.h. Cost: O(F²n²) for F ideals and n
/// workers, n times as much where places and memory both matter. Throws kInvalidInput for replicas
/// that need more than max_workers.
std::optional<SearchResult> FindBestPlan(const CostGraph& graph, const SearchOptions& options);

/// Whether FindPlansByWorkers knows more than FindBestPlan: one level, or `arxiv`, and alike
/// workers.
bool AreWorkersAlike(const SearchOptions& options);

/// The different plans that FindBestPlan finds with 1, 2, … up to max_workers and that cost at most
/// most_ms, by one search. Only where AreWorkersAlike. Of the ideals that are looked at.
std::vector<std::vector<StageChoice>> FindPlansByWorkers(const CostGraph& graph,
                                                         const SearchOptions& options);

/// The smallest memory_bytes with which FindBestPlan finds a plan; INT64_MAX if the cuts and
/// replicas leave none. Where not all ideals are looked at, of those that are.
int64_t SmallestMemory(const CostGraph& graph, const SearchOptions& options);

}  // namespace pd
