#include "partition/suffix_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace pd {
namespace {

constexpr double kRounding = 1e-9;  // relative, of sums of doubles that are only compared

}  // namespace

std::vector<int> RequiredReplicas(const SearchOptions& options) {
  std::vector<int> required;
  if (options.replicas.empty()) return required;
  required.assign(static_cast<size_t>(options.max_workers) + 1, -1);
  int behind = 0;
  for (auto m = options.replicas.rbegin(); m != options.replicas.rend(); ++m) {
    behind += *m;
    PD_REQUIRE(*m >= 1 && behind <= options.max_workers,
               "replicas of the stages: expected at most {} in all", options.max_workers);
    required[static_cast<size_t>(behind)] = *m;
  }
  return required;
}

SuffixSearch::SuffixSearch(const CostGraph& graph, const Ideals& ideals,
                           const SearchOptions& options)
    : graph_(graph),
      ideals_(ideals),
      options_(options),
      workers_(options.max_workers),
      max_replicas_(options.replicate ? workers_ : 1) {
  const std::vector<double>& speeds = options.rule.speeds;
  PD_CHECK(speeds.empty() || static_cast<int>(speeds.size()) >= workers_, "{} speeds, {} workers",
           speeds.size(), workers_);
  for (int w = 0; w < workers_ && !speeds.empty(); ++w) {
    places_ = places_ || speeds[w] != speeds[0];
    fastest_ = w == 0 ? speeds[0] : std::max(fastest_, speeds[w]);
  }
  if (places_) {
    slowest_.assign(static_cast<size_t>((workers_ + 1) * (workers_ + 1)), kNever);
    for (int first = 0; first < workers_; ++first) {
      double slowest = kNever;
      for (int m = 1; first + m <= workers_; ++m) {
        slowest = std::min(slowest, speeds[first + m - 1]);
        slowest_[static_cast<size_t>(first * (workers_ + 1) + m)] = slowest;
      }
    }
  }
  places_ = places_ || (options.rule.several_levels() && options.rule.model == CostModel::kRuntime);
  for (size_t level = 0; places_ && level + 1 < options.rule.levels.size(); ++level) {
    machine_ *= options.rule.levels[level].workers;
  }
  known_costs_.resize(static_cast<size_t>((max_replicas_ + 1) * machine_) * 2);
  if (options.memory_bytes) recompute_costs_.resize(known_costs_.size());
  least_work_.assign(static_cast<size_t>(ideals.size()), 0);
  for (int i = ideals.size(); i-- > 0;) {
    least_work_[i] = ideals.compute_ps(i, options.rule.model);
    if (i + 1 < ideals.size()) least_work_[i] = std::min(least_work_[i], least_work_[i + 1]);
  }
  counted_ = options.memory_bytes || !options.replicas.empty() || !places_;
  MakeSlots();
}

void SuffixSearch::MakeSlots() {
  const int n = workers_;
  for (int first = 0; first <= (places_ ? n : 0); ++first) {
    for (int behind = 0; behind <= (counted_ ? n : 0); ++behind) slots_.push_back({first, behind});
  }
  required_ = RequiredReplicas(options_);
}

std::vector<int> SuffixSearch::Starts() const {
  if (!options_.replicas.empty()) {
    const int total = std::accumulate(options_.replicas.begin(), options_.replicas.end(), 0);
    return {Index({0, total})};
  }
  if (!counted_) return {Index({0, 0})};
  std::vector<int> starts;
  for (int behind = 1; behind <= workers_; ++behind) starts.push_back(Index({0, behind}));
  return starts;
}

bool SuffixSearch::Allowed(int i, int j) const {
  if (!ideals_.Within(i, j)) return false;
  for (const int l : options_.cut_after) {
    if (!ideals_.Has(j, l) || ideals_.Has(i, l)) continue;
    for (const int consumer : graph_.layers[l].consumers) {
      if (ideals_.Has(j, consumer)) return false;
    }
  }
  return true;
}

SuffixSearch::Fit SuffixSearch::FitOf(const StageSums& sums, int replicas) const {
  Fit fit;
  if (!options_.memory_bytes) return fit;
  const int64_t limit = *options_.memory_bytes;
  fit.plain = MemoryEstimate(sums, replicas).MaxInFlight(limit, workers_);
  if (options_.allow_recompute) {
    fit.recompute = MemoryEstimate(sums, replicas, true).MaxInFlight(limit, workers_);
  }
  return fit;
}

// What surely passes the stage's machine links, whatever stands before and behind it.
double SuffixSearch::OwnLinksPs(const StageSums& sums, int i, int j, int first,
                                int replicas) const {
  const CostRule& rule = options_.rule;
  double largest = 0;
  int unit = 1;
  for (size_t level = 1; level < rule.levels.size(); ++level) {
    unit *= rule.levels[level - 1].workers;
    const int last = first + replicas - 1;
    // Of the units in between all have the same.
    for (const int u : {first / unit, std::min(first / unit + 1, last / unit),
                        std::max(last / unit - 1, first / unit), last / unit}) {
      const int begin = std::max(u * unit, first), end = std::min((u + 1) * unit, last + 1);
      const bool alone = u * unit >= first && i > 0;
      const bool ends = std::min((u + 1) * unit, workers_) <= last + 1 && j + 1 < ideals_.size();
      const int64_t out = (ends ? sums.out_bytes : 0) + (alone ? sums.in_gradient_bytes : 0);
      const int64_t in = (alone ? sums.in_bytes : 0) + (ends ? sums.out_gradient_bytes : 0);
      const double bytes = rule.AllReduceBytes(sums, first, replicas, u, unit) +
                           static_cast<double>((end - begin) * std::max(out, in));
      largest = std::max(largest, bytes / replicas / rule.levels[level].bytes_per_ms);
    }
  }
  return std::max(0.0, RoundPs(kPsPerMs * largest) - 1);  // LinkLoads may round otherwise.
}

// Less where it exceeds the limit anyway.
double SuffixSearch::CostPs(const StageSums& sums, int i, int j, int first, int replicas,
                            bool recompute, double limit) const {
  const CostRule& rule = options_.rule;
  const double speed = Slowest(first, replicas);
  double alone =
      std::max(rule.ComputePs(sums, replicas, speed, recompute), rule.LinkPs(sums, replicas));
  if (alone > limit) return alone;
  alone = std::max(alone, rule.AllReducePs(sums, first, replicas, speed, recompute));
  if (!rule.several_levels() || rule.model == CostModel::kArxiv) return alone;
  return std::max(alone, OwnLinksPs(sums, i, j, first, replicas));
}

double SuffixSearch::KnownCostPs(const StageSums& sums, int i, int j, int first, int replicas,
                                 bool recompute, double limit) {
  const int end = first + replicas == workers_ ? 1 : 0;  // The last machine may be smaller.
  const int at = (replicas * machine_ + first % machine_) * 2 + end;
  KnownCost& known = (recompute ? recompute_costs_ : known_costs_)[static_cast<size_t>(at)];
  const double speed = Slowest(first, replicas);
  if (known.stage != stage_ || known.speed != speed) {
    known = {speed, CostPs(sums, i, j, first, replicas, recompute, limit), stage_};
  }
  return known.ps;
}

// Of one replica within `limit`.
double SuffixSearch::MostWork(double limit) const {
  return (limit + 1) * (1 + kRounding) * fastest_;  // + 1: each cost is rounded.
}

int SuffixSearch::StageEnd(int i, double limit) const {
  const auto before = static_cast<double>(ideals_.compute_ps(i, options_.rule.model));
  const double most = before + MostWork(limit) * max_replicas_ * (1 + kRounding);
  const auto end = std::upper_bound(least_work_.begin(), least_work_.end(), most,
                                    [](double a, int64_t b) { return a < static_cast<double>(b); });
  return static_cast<int>(end - least_work_.begin());
}

int SuffixSearch::FewestReplicas(int i, int j, double limit) const {
  const CostModel model = options_.rule.model;
  const auto work =
      static_cast<double>(ideals_.compute_ps(j, model) - ideals_.compute_ps(i, model));
  const double most = MostWork(limit);
  if (work > most * max_replicas_) return max_replicas_ + 1;
  return std::max(1, static_cast<int>(std::ceil(work / most)));
}

std::optional<SuffixSearch::Stage> SuffixSearch::StageOf(const StageSums& sums, int i, int j,
                                                         int first, int replicas,
                                                         int behind) const {
  if (!required_.empty() && required_[behind] != replicas) return std::nullopt;
  const Fit fit = FitOf(sums, replicas);
  const int depth = Depth(replicas, behind);
  const bool recompute = depth > fit.plain;
  if (recompute && depth > fit.recompute) return std::nullopt;
  const double border =
      j + 1 < ideals_.size() ? options_.rule.BorderPs(ideals_.crossing_bytes(j)) : 0;
  return Stage{std::max(border, CostPs(sums, i, j, first, replicas, recompute, kNever)), recompute};
}

// Where the workers before might do the layers of each ideal within `limit`: no fewer than by
// their work, and by the best stages in front of it.
void SuffixSearch::FindReach(double limit, const std::vector<int>& family) {
  least_end_.assign(static_cast<size_t>(ideals_.size()), 0);
  const double slack = (limit + 1) * (1 + kRounding);  // + 1: each cost is rounded.
  for (const int i : family) {
    const auto work = static_cast<double>(ideals_.compute_ps(i, options_.rule.model));
    double speed = 0;  // Of the first workers.
    int workers = 0;
    for (; workers < workers_ && work > slack * speed; ++workers) {
      speed += options_.rule.speeds.empty() ? 1 : options_.rule.speeds[workers];
    }
    least_end_[i] = workers;
  }
  // What follows pays where there are many workers; sums between the order's ideals are cheap.
  constexpr int kFewWorkers = 2, kSomeWorkers = 31;
  const bool ordered =
      std::all_of(family.begin(), family.end(), [&](int i) { return ideals_.IsPrefix(i); });
  if (workers_ <= (ordered ? kFewWorkers : kSomeWorkers)) return;
  std::vector<int> least(least_end_.size(), workers_ + 1);
  least[family[0]] = 0;
  for (size_t a = 0; a < family.size(); ++a) {
    const int i = family[a];
    least_end_[i] = std::max(least_end_[i], least[i]);
    if (least_end_[i] >= workers_) continue;
    const int end = StageEnd(i, limit);
    for (size_t b = a + 1; b < family.size() && family[b] < end; ++b) {
      const int j = family[b];
      if (least[j] > least_end_[j]) least[j] = LeastEnd(i, j, limit, least[j]);
    }
  }
}

// At least as many workers, but at most `most`, are in front of ideal j if the layers behind i are
// the last stage there.
int SuffixSearch::LeastEnd(int i, int j, double limit, int most) const {
  constexpr int kMostTries = 32;
  const int begin = least_end_[i], fewest = FewestReplicas(i, j, limit);
  if (fewest > max_replicas_ || begin + fewest >= most || !Allowed(i, j)) return most;
  const bool last = j + 1 == ideals_.size();
  if (!last && options_.rule.BorderPs(ideals_.crossing_bytes(j)) > limit) return most;
  const StageSums sums = Sums(i, j);
  int tries = 0;
  const int last_end = places_ ? workers_ : begin + max_replicas_;
  for (int end = begin + fewest; end < most && end <= last_end; ++end) {
    // More replicas are slower only where they stand on more machines.
    for (int m = std::min(end - begin, max_replicas_); m >= fewest; --m) {
      const Fit fit = FitOf(sums, m);
      const bool recompute = fit.plain < 1;
      if (recompute && fit.recompute < 1) continue;
      if (++tries > kMostTries) return end;
      if (CostPs(sums, i, j, places_ ? end - m : 0, m, recompute, limit) <= limit) return end;
      if (!places_) break;
    }
  }
  return most;
}

// The bounds of `ideal` are final.
void SuffixSearch::CloseRows(int ideal, double limit) {
  last_row_[ideal] = -1;
  for (int first = 0; first < rows(); ++first) {
    Row row;
    for (int behind = 0; behind <= (counted_ ? workers_ : 0); ++behind) {
      if (bound(ideal, Index({first, behind})) > limit) continue;
      if (row.high < 0) row.low = behind;
      row.high = behind;
    }
    RowOf(ideal, first) = row;
    if (row.high >= 0) last_row_[ideal] = first;
  }
}

// Calls use(slot with the stage, slot without it, replicas, cost) for every way to run the layers
// between i and j as one stage before plans that are known to keep within `limit`, if
// worth(slot with the stage, slot without it, replicas). kBounds: only what lowers the bound of the
// slot with the stage is asked for. With more replicas at a place the rest has fewer workers, so
// where slots are places only, replicas end where the rest is the slower part.
template <bool kBounds, typename Worth, typename Use>
void SuffixSearch::ForEachStage(int i, int j, double limit, const Worth& worth, const Use& use) {
  const bool last = j + 1 == ideals_.size();
  const double border = last ? 0 : options_.rule.BorderPs(ideals_.crossing_bytes(j));
  if (border > limit || last_row_[j] < 0) return;
  const int fewest = FewestReplicas(i, j, limit);
  if (fewest > max_replicas_ || !ideals_.Within(i, j)) return;
  const int most_behind = places_ ? workers_ : workers_ - least_end_[i];
  std::optional<StageSums> sums;  // Taken late: most pairs of ideals are no stage within the limit.
  const int last_first = places_ ? last_row_[j] - fewest : 0;
  for (int first = places_ ? least_end_[i] : 0; first <= last_first; ++first) {
    const int most = places_ ? std::min(max_replicas_, last_row_[j] - first) : max_replicas_;
    const bool ends = kBounds && !counted_;
    bool done = false;
    int start = fewest;
    if (ends) start = std::max(start, FewestReplicas(i, j, std::min(limit, bound(i, first))));
    for (int m = start; m <= most && !done; ++m) {
      const int counted = counted_ ? m : 0;
      const Row& row = RowOf(j, places_ ? first + m : 0);
      double ps[2] = {-1, -1};  // Without and with recomputation.
      const int high = std::min(row.high + counted, most_behind);
      for (int behind = row.low + counted; behind <= high; ++behind) {
        const int without = Index({places_ ? first + m : 0, behind - counted});
        if (bounds_[At(j, without)] > limit) continue;
        const int with = Index({first, behind});
        if (!worth(with, without, m)) {
          done = ends;
          continue;
        }
        if (!required_.empty() && required_[behind] != m) continue;
        if (!sums) {
          if (!Allowed(i, j)) return;
          sums = Sums(i, j);
          const Fit alone = FitOf(*sums, 1);  // More replicas only add the staging of all-reduces.
          if (std::max(alone.plain, alone.recompute) < 1) return;
          fits_.assign(static_cast<size_t>(max_replicas_) + 1, std::nullopt);
          ++stage_;
        }
        std::optional<Fit>& fit = fits_[static_cast<size_t>(m)];
        if (!fit) fit = FitOf(*sums, m);
        const int depth = Depth(m, behind);
        const bool recompute = depth > fit->plain;
        if (recompute && depth > fit->recompute) continue;
        double& cost = ps[recompute];
        if (cost < 0) cost = std::max(border, KnownCostPs(*sums, i, j, first, m, recompute, limit));
        if (cost <= limit) use(with, without, m, cost);
        done = ends && cost <= bounds_[At(j, without)];
      }
    }
  }
}

// Workers before a stage may stay idle.
template <typename Value>
void SuffixSearch::AllowIdle(std::vector<Value>& table, int ideal) const {
  if (!places_) return;
  const auto width = static_cast<size_t>(counted_ ? workers_ + 1 : 1);
  for (size_t s = static_cast<size_t>(workers_) * width; s-- > 0;) {
    Value* const row = &table[At(ideal, 0)];
    row[s] = std::min(row[s], row[s + width]);
  }
}

// About `count` ideals of the layers' order, the first and the last among them.
std::vector<int> SuffixSearch::Thinned(int count) const {
  std::vector<int> order, few;
  for (int i = 0; i < ideals_.size(); ++i) {
    if (ideals_.IsPrefix(i)) order.push_back(i);
  }
  const size_t step = 1 + order.size() / static_cast<size_t>(count);
  for (size_t o = 0; o + 1 < order.size(); o += step) few.push_back(order[o]);
  few.push_back(order.back());
  return few;
}

std::vector<int> SuffixSearch::Everything() const {
  std::vector<int> family(static_cast<size_t>(ideals_.size()));
  std::iota(family.begin(), family.end(), 0);
  return family;
}

double SuffixSearch::FindBounds(double most) {
  double limit = std::min(most, std::numeric_limits<double>::max());
  // Plans with few borders are found fast, and limit what is looked at among those with more.
  for (const int count : {1, 12, 128}) {
    if (ideals_.size() < 2 * count) break;
    FillBounds(limit, Thinned(count));
    limit = std::min(limit, BestBound());
  }
  FillBounds(limit, Everything());
  return limit;
}

void SuffixSearch::FillBounds(double limit, const std::vector<int>& family) {
  bounds_.assign(At(ideals_.size(), 0), kNever);
  rows_.assign(static_cast<size_t>(ideals_.size() * rows()), Row());
  last_row_.assign(static_cast<size_t>(ideals_.size()), -1);
  FindReach(limit, family);
  for (int s = 0; s < slots(); ++s) {
    if (slots_[s].behind == 0) bounds_[At(family.back(), s)] = 0;
  }
  CloseRows(family.back(), limit);
  for (size_t a = family.size() - 1; a-- > 0;) {
    const int i = family[a];
    const int end = StageEnd(i, limit);
    for (size_t b = a + 1; b < family.size() && family[b] < end; ++b) {
      const int j = family[b];
      ForEachStage<true>(
          i, j, limit,
          [&](int with, int without, int) {
            return bounds_[At(j, without)] < bounds_[At(i, with)];
          },
          [&](int with, int without, int, double ps) {
            double& best = bounds_[At(i, with)];
            best = std::min(best, std::max(ps, bounds_[At(j, without)]));
          });
    }
    AllowIdle(bounds_, i);
    CloseRows(i, limit);
  }
}

double SuffixSearch::BestBound() const {
  double best = kNever;
  for (const int start : Starts()) best = std::min(best, bounds_[At(0, start)]);
  return best;
}

void SuffixSearch::FillCounts(double limit) {
  counts_.assign(At(ideals_.size(), 0), kNoPlan);
  FindReach(limit, Everything());
  const int all = ideals_.size() - 1;
  for (int s = 0; s < slots(); ++s) {
    if (slots_[s].behind == 0) counts_[At(all, s)] = {0, 0};
  }
  for (int i = all - 1; i >= 0; --i) {
    const int end = StageEnd(i, limit);
    for (int j = i + 1; j < end; ++j) {
      const auto counts_with = [&](int without, int m) {
        const Counts after = counts_[At(j, without)];
        return Counts{after.first + m, after.second + 1};  // More than kNoPlan where there is none.
      };
      ForEachStage<false>(
          i, j, limit,
          [&](int with, int without, int m) {
            return counts_with(without, m) < counts_[At(i, with)];
          },
          [&](int with, int without, int m, double) {
            counts_[At(i, with)] = counts_with(without, m);
          });
    }
    AllowIdle(counts_, i);
  }
}

// The first stage, by the tie rule, of the plans with the counts of a slot.
SuffixSearch::Choice SuffixSearch::FirstOf(int i, Slot slot, double limit) const {
  const Counts wanted = counts(i, Index(slot));
  const int end = StageEnd(i, limit);
  for (int j = i + 1; j < end; ++j) {
    if (!Allowed(i, j)) continue;
    const StageSums sums = Sums(i, j);
    for (int m = 1; m <= std::min(max_replicas_, wanted.first); ++m) {
      for (int first = slot.first; first <= (places_ ? workers_ - m : 0); ++first) {
        const Slot behind = After(slot, first, m);
        if (behind.behind < 0) continue;
        const Counts after = counts(j, Index(behind));
        if (Counts{after.first + m, after.second + 1} != wanted) continue;
        const auto stage = StageOf(sums, i, j, first, m, slot.behind);
        if (stage && stage->ps <= limit) return {i, j, first, m, stage->recompute};
      }
    }
  }
  PD_CHECK(false, "no stage behind ideal {}", i);
  return {};
}

std::vector<SuffixSearch::Choice> SuffixSearch::ReadPlan(double limit) const {
  const std::vector<int> starts = Starts();
  const int start = *std::min_element(starts.begin(), starts.end(),
                                      [&](int a, int b) { return counts(0, a) < counts(0, b); });
  std::vector<Choice> plan;
  int used = 0;
  for (Slot slot = slots_[start]; plan.empty() || plan.back().j + 1 < ideals_.size();) {
    Choice choice = FirstOf(plan.empty() ? 0 : plan.back().j, slot, limit);
    slot = After(slot, choice.first, choice.replicas);
    if (!places_) choice.first = used;
    used += choice.replicas;
    plan.push_back(choice);
  }
  return plan;
}

int64_t SuffixSearch::LeastMemory() {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  PD_CHECK(!places_ && options_.memory_bytes, "the least memory needs no places");
  std::vector<int64_t> least(At(ideals_.size(), 0), kNone);
  const int all = ideals_.size() - 1;
  least[At(all, 0)] = 0;
  for (int i = all - 1; i >= 0; --i) {
    for (int j = i + 1; j <= all; ++j) {
      if (!Allowed(i, j)) continue;
      const StageSums sums = Sums(i, j);
      for (int m = 1; m <= max_replicas_; ++m) {
        const MemoryEstimate memory(sums, m, options_.allow_recompute);
        for (int behind = m; behind <= workers_; ++behind) {
          if (!required_.empty() && required_[behind] != m) continue;
          int64_t& best = least[At(i, behind)];
          const int64_t bytes = memory.Bytes(Depth(m, behind));
          best = std::min(best, std::max(bytes, least[At(j, behind - m)]));
        }
      }
    }
  }
  int64_t best = kNone;
  for (const int start : Starts()) best = std::min(best, least[At(0, start)]);
  return best;
}

}  // namespace pd
