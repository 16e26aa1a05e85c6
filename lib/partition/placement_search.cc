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
  filled_ps_ = suffix_.FindBounds(RoundPs(options_.most_ms * kPsPerMs));
  proven_ps_ = suffix_.BestBound();
  if (proven_ps_ == kNever) return std::nullopt;
  // The plan that the bounds suggest, and one stage on any number of workers, to start with.
  suffix_.FillCounts(proven_ps_);
  Consider(suffix_.ReadPlan(proven_ps_));
  ConsiderWhole();
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
    const int last_first = options_.rule.speeds.empty() ? 0 : suffix_.workers() - m;
    for (int first = 0; first <= last_first; ++first) {
      const auto stage = suffix_.StageOf(sums, 0, all_, first, m, m);
      if (!stage || stage->ps >= best_ps_) continue;  // Its cost is no less.
      Consider({{0, all_, first, m, stage->recompute}});
    }
  }
}

// Narrows [proven_ps_, best_ps_] until both meet or the steps are used up.
void PlacementSearch::Bisect() {
  constexpr int kShare = 6;  // of the steps left, for one trial
  double low = proven_ps_, trial = low;
  const double most = options_.most_ms * kPsPerMs;
  while (proven_ps_ < best_ps_ && low < best_ps_ && low <= most && steps_left_ > 0) {
    if (low > filled_ps_ && !MayFill(low)) return;
    trial = std::min(trial, filled_ps_);
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

// Fills the bounds of suffix_ up to `ps` and more; where that is slow a little more, and twice.
bool PlacementSearch::MayFill(double ps) {
  constexpr double kSlow = 1e9, kMore = 1.02;  // kSlow: ideals² · workers²
  constexpr int kMostRefills = 2;
  const double size = static_cast<double>(ideals_.size()) * suffix_.workers();
  const bool slow = size * size > kSlow;
  if (slow && ++refills_ > kMostRefills) return false;
  filled_ps_ = slow ? std::min(best_ps_, std::floor(kMore * ps)) : best_ps_;
  suffix_.FillBounds(filled_ps_);
  return true;
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
  next_limit_ = filled_ps_ + 1;  // Costs are whole numbers, and what costs more is not looked at.
  any_ = any;
  out_of_steps_ = false;
  walk_steps_ = std::min(steps, steps_left_);
  known_.clear();
}

// Among the plans that cost best_ps_, the first by the tie rule; all must be looked at.
void PlacementSearch::BreakTies() {
  if (best_ps_ > filled_ps_ && !MayFill(best_ps_)) return;
  StartWalk(best_ps_, /*any=*/false, steps_left_ / 2);
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
    ForEachNext(i, slot, [&](const Choice& choice, Counts after) {
      found = Counts{after.first + choice.replicas, after.second + 1} == fewest;
      taken = choice;
      return found;
    });
    if (!found || out_of_steps_) break;
    plan.push_back(taken);
    path_.push_back(taken);
    loads_.Push(Loads(taken, Of(taken.i, taken.j)));
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

bool PlacementSearch::Spend(int64_t steps) {
  walk_steps_ -= steps;
  steps_left_ -= steps;
  if (walk_steps_ < 0) out_of_steps_ = true;
  return !out_of_steps_;
}

// Alike workers between a stage and the one before it stay idle only to reach the start of a
// machine, or to divide the stage otherwise among machines.
bool PlacementSearch::IsCanonical(int first, int replicas, SuffixSearch::Slot slot) const {
  if (first == slot.first || !options_.rule.speeds.empty()) return true;
  const int machine = loads_.unit(1);
  return first % machine == 0 || first / machine != (first + replicas - 1) / machine;
}

// Calls use(choice, counts of the best rest) for each stage that may stand next, in the order of
// the tie rule, until it returns true.
template <typename Use>
void PlacementSearch::ForEachNext(int i, SuffixSearch::Slot slot, const Use& use) {
  const int end = suffix_.StageEnd(i, filled_ps_);
  for (int j = i + 1; j < end; ++j) {
    if (!Spend(1)) return;
    const int last_first = suffix_.last_first(j);
    if (last_first <= slot.first || !suffix_.Allowed(i, j)) continue;
    const int fewest = suffix_.FewestReplicas(i, j, filled_ps_);
    Between* between = nullptr;
    for (int m = fewest; m <= suffix_.max_replicas(); ++m) {
      for (int first = slot.first; first + m <= last_first; ++first) {
        if (!IsCanonical(first, m, slot)) continue;
        if (between == nullptr) between = &Of(i, j);
        Choice choice{i, j, first, m, false};
        if (!Spend(1)) return;
        const Counts after = Try(choice, *between, slot);
        if (out_of_steps_) return;
        if (after == SuffixSearch::kNoPlan) continue;
        if (use(choice, after)) return;
      }
    }
  }
}

// The best rest of a plan behind `choice`, if all keeps within the limit.
PlacementSearch::Counts PlacementSearch::Try(Choice& choice, Between& between,
                                             SuffixSearch::Slot slot) {
  const SuffixSearch::Slot after = suffix_.After(slot, choice.first, choice.replicas);
  if (after.behind < 0) return SuffixSearch::kNoPlan;
  const double bound = suffix_.bound(choice.j, suffix_.Index(after));
  if (bound == kNever) return SuffixSearch::kNoPlan;
  const auto stage =
      suffix_.StageOf(between.sums, choice.i, choice.j, choice.first, choice.replicas, slot.behind);
  if (!stage) return SuffixSearch::kNoPlan;
  choice.recompute = stage->recompute;
  double ps = std::max(bound, stage->ps);
  if (ps > limit_) {
    next_limit_ = std::min(next_limit_, ps);
    return SuffixSearch::kNoPlan;
  }
  // What the links of machines take to compute.
  constexpr int64_t kLinkSteps = 8, kTensorsAStep = 16;
  LinkLoads::Stage load = Loads(choice, between);
  const size_t tensors = load.tensors->inputs.size() + load.tensors->outputs.size();
  if (!Spend(kLinkSteps + static_cast<int64_t>(tensors) / kTensorsAStep)) {
    return SuffixSearch::kNoPlan;
  }
  loads_.Push(std::move(load));
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
  const std::string_view view = Key(i, slot);
  const auto found = known_.find(view);
  if (found != known_.end()) return found->second;
  std::string key(view);
  Counts best = SuffixSearch::kNoPlan;
  ForEachNext(i, slot, [&](const Choice& choice, Counts after) {
    best = std::min(best, Counts{after.first + choice.replicas, after.second + 1});
    return any_;
  });
  if (!out_of_steps_) known_.emplace(std::move(key), best);
  return best;
}

// What the rest of a plan depends on.
std::string_view PlacementSearch::Key(int i, SuffixSearch::Slot slot) {
  int open = slot.first;  // The first worker on a unit on which more may follow.
  for (int level = 1; level < loads_.levels(); ++level) {
    open = std::min(open, slot.first / loads_.unit(level) * loads_.unit(level));
  }
  key_ = {i, suffix_.Index(slot)};
  for (size_t s = path_.size(); s-- > 0;) {
    const Choice& choice = path_[s];
    if (choice.first + choice.replicas <= open) break;
    key_.insert(key_.end(), {choice.i, choice.j, choice.first, choice.replicas});
  }
  return {reinterpret_cast<const char*>(key_.data()), key_.size() * sizeof(int)};
}

PlacementSearch::Between& PlacementSearch::Of(int i, int j) {
  const auto [known, fresh] = between_.try_emplace(int64_t{i} * ideals_.size() + j);
  if (fresh) known->second.sums = suffix_.Sums(i, j);
  return known->second;
}

LinkLoads::Stage PlacementSearch::Loads(const Choice& choice, Between& between) {
  if (!between.tensors) {
    const auto tensors = std::make_shared<LinkLoads::Tensors>();
    tensors->sums = between.sums;
    const auto inside = [&](int l) {
      return ideals_.Has(choice.j, l) && !ideals_.Has(choice.i, l);
    };
    for (const int l : ideals_.boundary(choice.i)) {
      const LinkLoads::Tensors::Input input = InputOf(graph_, l, inside);
      if (input.readers > 0) tensors->inputs.push_back(input);
    }
    for (const int l : ideals_.boundary(choice.j)) {
      if (!ideals_.Has(choice.i, l)) tensors->outputs.push_back(OutputOf(graph_, l, inside));
    }
    between.tensors = tensors;
  }
  return {choice.first, choice.replicas, between.tensors};
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
