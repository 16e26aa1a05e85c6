// What is searched how:
// - one level, or `arxiv`: stages cost what they cost wherever the others stand, so the recurrence
// of
//   SuffixSearch is exact. It is filled twice, since the maximum in it hides ties behind the
//   slowest stage: first the bottlenecks, then, with the optimum known, the fewest workers and
//   stages.
// - several levels: PlacementSearch, and HierarchySearch for `arxiv`.
#include "partition/search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "partition/hierarchy.h"
#include "partition/ideals.h"
#include "partition/placement_search.h"
#include "partition/suffix_search.h"

namespace pd {
namespace {

// Work that takes seconds, measured in steps of the innermost loops.
constexpr double kMostUpdates = 1.2e9;
constexpr double kMostHierarchical = 4e8;
constexpr int kMostIdeals = 4096, kFewestIdeals = 32;
constexpr int64_t kMostSteps = 1'500'000;

bool IsHierarchical(const SearchOptions& options) {
  return options.rule.several_levels() && options.rule.model == CostModel::kArxiv;
}

// As many as the time allows: F²/2 pairs of ideals, n²/2 replica counts and slots for each.
int MostIdeals(const SearchOptions& options) {
  if (options.max_ideals > 0) return std::max(2, options.max_ideals);
  const double n = options.max_workers;
  if (IsHierarchical(options)) {
    // F³/6 triples of ideals, at each level for all numbers of units and places; with memory for
    // every number of workers behind, of copies, and in use.
    double each = 0;
    for (const CostRule::Level& level : options.rule.levels) {
      each += static_cast<double>(level.workers) * level.workers / 2;
    }
    if (options.memory_bytes || !options.replicas.empty()) each *= n * n * n / 4;
    if (!options.rule.speeds.empty()) each *= n;
    const double most = std::cbrt(6 * kMostHierarchical / each);
    return static_cast<int>(std::clamp<double>(most, kFewestIdeals / 4, kMostIdeals));
  }
  const bool places = options.rule.several_levels() || !options.rule.speeds.empty();
  const bool both = places && (options.memory_bytes || !options.replicas.empty());
  double updates = options.replicate ? n * n / 2 : n;
  if (both) updates *= n / 2;
  // One worker a stage: few pairs of ideals are a stage.
  constexpr double kFewPairs = 1.0 / 8;
  if (!options.replicate && !both) updates = std::max(1.0, updates * kFewPairs);
  // Of many machines each cost takes long to compute.
  constexpr double kMany = 256;
  if (options.rule.several_levels() && options.replicate) updates *= std::max(1.0, n / kMany);
  const double most = std::sqrt(2 * kMostUpdates / updates);
  return static_cast<int>(std::clamp<double>(most, kFewestIdeals, kMostIdeals));
}

int MostWorkers(const SearchOptions& options) {
  int workers = options.max_workers;
  PD_CHECK(workers >= 1, "a search for {} workers", workers);
  if (!options.rule.speeds.empty()) {
    workers = std::min(workers, static_cast<int>(options.rule.speeds.size()));
  }
  if (options.rule.several_levels()) {
    int64_t named = 1;
    for (const CostRule::Level& level : options.rule.levels) named *= level.workers;
    workers = static_cast<int>(std::min<int64_t>(workers, named));
  }
  return workers;
}

// No plan can be faster: the work over the speeds of all workers, and the longest layer on all.
// Costs are rounded to whole picoseconds, and so are these.
double LeastPs(const CostGraph& graph, const SearchOptions& options) {
  double speed = 0, fastest = 0;
  for (int w = 0; w < options.max_workers; ++w) {
    const double own = options.rule.speeds.empty() ? 1 : options.rule.speeds[w];
    speed += own;
    fastest = std::max(fastest, own);
  }
  double work = 0, longest = 0;
  for (int l = 0; l < graph.size(); ++l) {
    const double ps = options.rule.ComputePs(SumsOf(graph, {l}, false), 1, 1, false);
    work += ps;
    longest = std::max(longest, ps);
  }
  const int replicas = options.replicate ? options.max_workers : 1;
  const double least = std::max(work / speed, longest / (replicas * fastest));
  return std::max(0.0, std::ceil(least * (1 - 1e-15) - 0.5));
}

// What a search has proven holds for the ideals that were looked at.
std::optional<SearchResult> WithProof(std::optional<SearchResult> result, const CostGraph& graph,
                                      const Ideals& ideals, const SearchOptions& options) {
  if (result) result->ideals = ideals.size();
  if (!result || ideals.all()) return result;
  result->lower_bound_ms = std::min(result->bottleneck_ms, LeastPs(graph, options) / kPsPerMs);
  result->exact = result->lower_bound_ms == result->bottleneck_ms;
  return result;
}

}  // namespace

std::optional<SearchResult> FindBestPlan(const CostGraph& graph, const SearchOptions& given) {
  SearchOptions options = given;
  options.max_workers = MostWorkers(given);
  const Ideals ideals(graph, MostIdeals(options));
  if (IsHierarchical(options)) {
    return WithProof(HierarchySearch(graph, ideals, options).Run(), graph, ideals, options);
  }
  SuffixSearch suffix(graph, ideals, options);
  if (options.rule.several_levels()) {
    int64_t own = options.max_steps > 0 ? options.max_steps : kMostSteps;
    int64_t& left = options.steps_left != nullptr ? *options.steps_left : own;
    const int64_t steps = std::clamp<int64_t>(left, 0, own);
    PlacementSearch search(graph, suffix, options, steps);
    auto result = search.Run();
    left -= steps - std::max<int64_t>(0, search.steps_left());
    return WithProof(std::move(result), graph, ideals, options);
  }
  suffix.FindBounds(RoundPs(options.most_ms * kPsPerMs));
  const double best = suffix.BestBound();
  if (best == kNever) return std::nullopt;
  suffix.FillCounts(best);
  SearchResult result;
  result.bottleneck_ms = result.lower_bound_ms = best / kPsPerMs;
  for (const auto& choice : suffix.ReadPlan(best)) result.stages.push_back(suffix.Describe(choice));
  return WithProof(std::move(result), graph, ideals, options);
}

bool AreWorkersAlike(const SearchOptions& options) {
  return !options.rule.several_levels() && options.rule.speeds.empty();
}

std::vector<std::vector<StageChoice>> FindPlansByWorkers(const CostGraph& graph,
                                                         const SearchOptions& options) {
  PD_CHECK(AreWorkersAlike(options), "plans by the number of unlike workers");
  const Ideals ideals(graph, MostIdeals(options));
  SuffixSearch suffix(graph, ideals, options);
  suffix.FillBounds(RoundPs(options.most_ms * kPsPerMs));
  std::vector<std::vector<StageChoice>> plans;
  double least = kNever;
  for (const int start : suffix.Starts()) {
    const double bound = suffix.bound(0, start);
    if (bound >= least) continue;
    least = bound;
    suffix.FillCounts(bound);
    plans.emplace_back();
    for (const auto& choice : suffix.ReadPlan(bound)) {
      plans.back().push_back(suffix.Describe(choice));
    }
  }
  return plans;
}

int64_t SmallestMemory(const CostGraph& graph, const SearchOptions& given) {
  SearchOptions options = given;
  options.max_workers = MostWorkers(given);
  options.memory_bytes = std::numeric_limits<int64_t>::max();
  const int most = MostIdeals(options);
  const Ideals ideals(graph, most);
  if (IsHierarchical(options)) return HierarchySearch(graph, ideals, options).LeastMemory();
  // Neither speeds nor links take memory.
  options.rule.levels.clear();
  options.rule.speeds.clear();
  return SuffixSearch(graph, ideals, options).LeastMemory();
}

}  // namespace pd
