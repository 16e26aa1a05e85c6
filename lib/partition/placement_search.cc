#include "partition/placement_search.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace pd {

PlacementSearch::PlacementSearch(const CostGraph& graph, SuffixSearch& suffix,
                                 const SearchOptions& options, int64_t max_steps)
    : graph_(graph),
      suffix_(suffix),
      ideals_(suffix.ideals()),
      options_(options),
      steps_left_(max_steps),
      all_(suffix.ideals().size() - 1),
      loads_(graph, options.rule, suffix.workers()) {}

std::optional<SearchResult> PlacementSearch::Run() {
  suffix_.FillBounds();
  proven_ps_ = suffix_.BestBound();
  if (proven_ps_ == kNever) return std::nullopt;
  // The plan that the bounds suggest, and one stage on any number of workers, to start with.
  suffix_.FillCounts(proven_ps_);
  Consider(suffix_.ReadPlan(proven_ps_));
  ConsiderWhole();
  suffix_.FillBounds(best_ps_);
  Bisect();
  const bool exact = proven_ps_ >= best_ps_;
  if (exact) BreakTies();
  return SearchResult{Choices(best_), best_ps_ / kPsPerMs, proven_ps_ / kPsPerMs, exact};
}

void PlacementSearch::Consider(const std::vector<Choice>& plan) {
  const double ps = CostPs(plan);
  if (ps >= best_ps_) return;
  best_ps_ = ps;
  best_ = plan;
}

void PlacementSearch::ConsiderWhole() {
  if (options_.replicas.size() > 1 || !suffix_.Allowed(0, all_)) return;
  const StageSums sums = suffix_.Sums(0, all_);
  for (int m = 1; m <= suffix_.max_replicas(); ++m) {
    for (int first = 0; first + m <= suffix_.workers(); ++first) {
      const auto stage = suffix_.StageOf(sums, 0, all_, first, m, m);
      if (stage) Consider({{0, all_, first, m, stage->recompute}});
    }
  }
}

// Narrows [proven_ps_, best_ps_] until both meet or the steps are used up.
void PlacementSearch::Bisect() {
  constexpr int kShare = 6;  // of the steps left, for one trial
  double low = proven_ps_, trial = low;
  while (proven_ps_ < best_ps_ && low < best_ps_ && steps_left_ > 0) {
    if (FindSome(trial, steps_left_ / kShare + 1)) {
      PD_CHECK(best_ps_ <= trial, "a plan within {} ps costs {} ps", trial, best_ps_);
    } else if (out_of_steps_) {
      low = trial + 1;  // A guess.
    } else {
      proven_ps_ = std::max(proven_ps_, std::min(next_limit_, best_ps_));
      low = std::max(low, proven_ps_);
    }
    trial = std::floor((low + best_ps_) / 2);
  }
}

bool PlacementSearch::FindSome(double limit, int64_t steps) {
  StartWalk(limit, /*any=*/true, steps);
  for (const int start : suffix_.Starts()) {
    if (Best(0, suffix_.slot(start)) != SuffixSearch::kNoPlan) return true;
    if (out_of_steps_) return false;
  }
  return false;
}

void PlacementSearch::StartWalk(double limit, bool any, int64_t steps) {
  limit_ = limit;
  next_limit_ = kNever;
  any_ = any;
  out_of_steps_ = false;
  walk_steps_ = std::min(steps, steps_left_);
  known_.clear();
}

// Among the plans that cost best_ps_, the first by the tie rule; all must be looked at.
void PlacementSearch::BreakTies() {
  StartWalk(best_ps_, /*any=*/false, steps_left_);
  Counts fewest = SuffixSearch::kNoPlan;
  SuffixSearch::Slot slot;
  for (const int start : suffix_.Starts()) {
    const Counts counts = Best(0, suffix_.slot(start));
    if (out_of_steps_) return;
    if (counts >= fewest) continue;
    fewest = counts;
    slot = suffix_.slot(start);
  }
  std::vector<Choice> plan;
  int i = 0;
  while (i != all_) {
    bool found = false;
    Choice taken;
    StageSums taken_sums;
    ForEachNext(i, slot, [&](const Choice& choice, const StageSums& sums, Counts after) {
      found = Counts{after.first + choice.replicas, after.second + 1} == fewest;
      taken = choice;
      taken_sums = sums;
      return found;
    });
    if (!found || out_of_steps_) break;
    plan.push_back(taken);
    path_.push_back(taken);
    loads_.Push(Describe(taken, taken_sums));
    slot = suffix_.After(slot, taken.first, taken.replicas);
    fewest = {fewest.first - taken.replicas, fewest.second - 1};
    i = taken.j;
  }
  for (size_t s = 0; s < plan.size(); ++s) loads_.Pop();
  path_.clear();
  if (i != all_) return;
  PD_CHECK(CostPs(plan) == best_ps_, "the plan by the tie rule costs {} ps, not {}", CostPs(plan),
           best_ps_);
  best_ = plan;
}

// Calls use(choice, sums, counts of the best rest) for each stage that may stand next, in the order
// of the tie rule, until it returns true.
template <typename Use>
void PlacementSearch::ForEachNext(int i, SuffixSearch::Slot slot, const Use& use) {
  for (int j = i + 1; j <= all_; ++j) {
    if (!suffix_.Allowed(i, j)) continue;
    if (--walk_steps_ < 0) {
      out_of_steps_ = true;
      return;
    }
    --steps_left_;
    const StageSums sums = suffix_.Sums(i, j);
    for (int m = 1; m <= suffix_.max_replicas(); ++m) {
      for (int first = slot.first; first + m <= suffix_.workers(); ++first) {
        Choice choice{i, j, first, m, false};
        const Counts after = Try(choice, sums, slot);
        if (out_of_steps_) return;
        if (after == SuffixSearch::kNoPlan) continue;
        if (use(choice, sums, after)) return;
      }
    }
  }
}

// The best rest of a plan behind `choice`, if all keeps within the limit.
PlacementSearch::Counts PlacementSearch::Try(Choice& choice, const StageSums& sums,
                                             SuffixSearch::Slot slot) {
  const SuffixSearch::Slot after = suffix_.After(slot, choice.first, choice.replicas);
  if (after.behind < 0) return SuffixSearch::kNoPlan;
  const double bound = suffix_.bound(choice.j, suffix_.Index(after));
  if (bound == kNever) return SuffixSearch::kNoPlan;
  const auto stage =
      suffix_.StageOf(sums, choice.i, choice.j, choice.first, choice.replicas, slot.behind);
  if (!stage) return SuffixSearch::kNoPlan;
  choice.recompute = stage->recompute;
  double ps = std::max(bound, stage->ps);
  if (ps > limit_) {
    next_limit_ = std::min(next_limit_, ps);
    return SuffixSearch::kNoPlan;
  }
  loads_.Push(Describe(choice, sums));
  path_.push_back(choice);
  Counts counts = SuffixSearch::kNoPlan;
  ps = loads_.LargestPs(choice.j == all_ ? suffix_.workers() : after.first);
  if (ps > limit_) {
    next_limit_ = std::min(next_limit_, ps);
  } else {
    counts = Best(choice.j, after);
  }
  path_.pop_back();
  loads_.Pop();
  return counts;
}

// The fewest workers and stages that complete the plan begun in loads_; with any_ of the first
// completion that is met.
PlacementSearch::Counts PlacementSearch::Best(int i, SuffixSearch::Slot slot) {
  if (i == all_) {
    if (slot.behind != 0) return SuffixSearch::kNoPlan;
    if (any_) Consider(path_);
    return {0, 0};
  }
  const std::string key = Key(i, slot);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  Counts best = SuffixSearch::kNoPlan;
  ForEachNext(i, slot, [&](const Choice& choice, const StageSums&, Counts after) {
    best = std::min(best, Counts{after.first + choice.replicas, after.second + 1});
    return any_;
  });
  if (!out_of_steps_) known_.emplace(key, best);
  return best;
}

// What the rest of a plan depends on.
std::string PlacementSearch::Key(int i, SuffixSearch::Slot slot) const {
  int open = slot.first;  // The first worker on a unit on which more may follow.
  for (int level = 1; level < loads_.levels(); ++level) {
    open = std::min(open, slot.first / loads_.unit(level) * loads_.unit(level));
  }
  std::vector<int> parts = {i, suffix_.Index(slot)};
  for (const Choice& choice : path_) {
    if (choice.first + choice.replicas <= open) continue;
    parts.insert(parts.end(), {choice.i, choice.j, choice.first, choice.replicas});
  }
  return {reinterpret_cast<const char*>(parts.data()), parts.size() * sizeof(int)};
}

LinkLoads::Stage PlacementSearch::Describe(const Choice& choice, const StageSums& sums) const {
  const int i = choice.i, j = choice.j;
  LinkLoads::Stage stage;
  stage.first_worker = choice.first;
  stage.replicas = choice.replicas;
  stage.layers = ideals_.LayersBetween(i, j);
  stage.parameter_bytes = sums.parameter_bytes;
  for (const int l : ideals_.boundary(i)) {
    const std::vector<int>& consumers = graph_.layers[l].consumers;
    const bool read = std::any_of(consumers.begin(), consumers.end(), [&](int consumer) {
      return ideals_.Has(j, consumer) && !ideals_.Has(i, consumer);
    });
    if (read) stage.inputs.push_back(l);
  }
  for (const int l : ideals_.boundary(j)) {
    if (!ideals_.Has(i, l)) stage.outputs.push_back(l);
  }
  return stage;
}

double PlacementSearch::CostPs(const std::vector<Choice>& plan) const {
  double largest = 0;
  for (const ResourceCost& cost : ResourceCosts(graph_, Choices(plan), options_.rule)) {
    largest = std::max(largest, RoundPs(cost.ms * kPsPerMs));
  }
  return largest;
}

std::vector<StageChoice> PlacementSearch::Choices(const std::vector<Choice>& plan) const {
  std::vector<StageChoice> stages;
  for (const Choice& choice : plan) {
    stages.push_back(suffix_.Describe(choice));
  }
  return stages;
}

}  // namespace pd
