#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "partition/cost.h"

namespace pd {

/// A stage of a candidate plan: layers [begin, end) on `replicas` workers.
struct StageChoice {
  int begin = 0, end = 0;
  int replicas = 1;

  bool operator==(const StageChoice&) const = default;
};

struct SearchOptions {
  CostRule rule;
  int max_workers = 1;
  bool replicate = true;  ///< False: one worker a stage.
  /// True: memory counts one minibatch in flight everywhere; false: ⌈(Σ_{t≥s} r_t)/r_s⌉ at stage s.
  bool one_in_flight = false;
  std::optional<int64_t>
      memory_bytes;  ///< Of each worker; stages that need more are no candidates.
};

struct SearchResult {
  std::vector<StageChoice> stages;
  double bottleneck_ms = 0;  ///< The largest stage or border cost under the rule.
};

/// The plan with the smallest bottleneck among all cuts of the layers' order into consecutive
/// stages and all replica counts, with at most max_workers workers. Exact. Ties: fewer workers,
/// then fewer stages, then the earliest cuts (the first cut first), then fewer replicas in the
/// first stage, the second, …. Nothing if no plan fits the memory. Source: arXiv 1806.03377 §3.2,
/// A(j, m). Differs: from the last stage to the first, since the workers behind a stage fix its
/// minibatches in flight, hence its memory; idle workers are allowed; `runtime` costs. Cost:
/// O(N²n²) for N layers and n workers.
std::optional<SearchResult> FindBestPlan(const CostGraph& graph, const SearchOptions& options);

/// The smallest memory_bytes with which FindBestPlan finds a plan. Cost: O(N²n²).
int64_t SmallestMemory(const CostGraph& graph, const SearchOptions& options);

}  // namespace pd
