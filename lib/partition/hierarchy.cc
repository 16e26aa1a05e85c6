#include "partition/hierarchy.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "partition/suffix_search.h"

namespace pd {
namespace {

int Sum(const std::vector<int>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0);
}

}  // namespace

bool HierarchySearch::Context::operator<(const Context& other) const {
  return std::tie(level, behind, copies, speeds) <
         std::tie(other.level, other.behind, other.copies, other.speeds);
}

bool HierarchySearch::Key::operator<(const Key& other) const {
  if (to != other.to) return to < other.to;
  return context < other.context;
}

HierarchySearch::HierarchySearch(const CostGraph& graph, const Ideals& ideals,
                                 const SearchOptions& options)
    : graph_(graph),
      ideals_(ideals),
      options_(options),
      counted_((options.memory_bytes && !options.one_in_flight) || !options.replicas.empty()),
      units_({1}),
      sizes_({1}) {
  for (const CostRule::Level& level : options.rule.levels) {
    const int units = std::min(level.workers, options.max_workers / sizes_.back());
    if (units == 0) break;
    units_.push_back(units);
    sizes_.push_back(sizes_.back() * units);
  }
  required_ = RequiredReplicas(options);
  sums_.resize(static_cast<size_t>(ideals.size()) * static_cast<size_t>(ideals.size()));
  for (int i = 0; i < ideals.size(); ++i) {
    for (int j = i + 1; j < ideals.size(); ++j) {
      if (!ideals.Within(i, j)) continue;
      sums_[static_cast<size_t>(i) * static_cast<size_t>(ideals.size()) + static_cast<size_t>(j)] =
          ideals.Between(i, j, options.memory_bytes.has_value());
    }
  }
}

bool HierarchySearch::Allowed(int i, int j) const {
  for (const int l : options_.cut_after) {
    if (!ideals_.Has(j, l) || ideals_.Has(i, l)) continue;
    for (const int consumer : graph_.layers[l].consumers) {
      if (ideals_.Has(j, consumer)) return false;
    }
  }
  return true;
}

// The inside of each of `units` units from `first` on, with `behind` workers in use behind them.
HierarchySearch::Context HierarchySearch::Inside(const Context& context, int first, int units,
                                                 int behind) const {
  Context inside;
  inside.level = context.level - 1;
  if (counted_) inside.behind = context.behind + context.copies * behind;
  // Only memory and fixed replicas look at the copies.
  if (options_.memory_bytes || counted_) inside.copies = context.copies * units;
  const int size = Size(inside.level);
  for (int w = 0; w < size && !context.speeds.empty(); ++w) {
    double slowest = kNever;
    for (int u = first; u < first + units; ++u) {
      slowest = std::min(slowest, context.speeds[static_cast<size_t>(u * size + w)]);
    }
    inside.speeds.push_back(slowest);
  }
  return inside;
}

bool HierarchySearch::Recomputes(const Context& context, const StageSums& sums) const {
  if (!options_.memory_bytes) return false;
  const int m = context.copies;
  const int depth = options_.one_in_flight ? 1 : (context.behind + 2 * m - 1) / m;
  return MemoryEstimate(sums, m).Bytes(depth) > *options_.memory_bytes;
}

// One worker, and its copies: the time of the layers, or in LeastMemory the bytes.
double HierarchySearch::WorkerValue(const Context& context, int from, int to) const {
  if (!Allowed(from, to)) return kNever;
  const StageSums& sums = Sums(from, to);
  const int m = context.copies;
  if (!required_.empty() && required_[context.behind + m] != m) return kNever;
  const int depth = options_.one_in_flight ? 1 : (context.behind + 2 * m - 1) / m;
  if (for_memory_) {
    return static_cast<double>(MemoryEstimate(sums, m, options_.allow_recompute).Bytes(depth));
  }
  const bool recompute = Recomputes(context, sums);
  if (recompute) {
    if (!options_.allow_recompute) return kNever;
    if (MemoryEstimate(sums, m, true).Bytes(depth) > *options_.memory_bytes) return kNever;
  }
  const double speed = context.speeds.empty() ? 1 : context.speeds[0];
  return options_.rule.ComputePs(sums, 1, speed, recompute);
}

// A^level(from→to) on a whole unit with exactly `used` of its workers (if they count).
double HierarchySearch::Value(const Context& context, int from, int to, int used) {
  if (context.level == 0) return used == Used(0) ? WorkerValue(context, from, to) : kNever;
  return Solve(context, to)[At(context.level, from, 0, used)].value;
}

const HierarchySearch::Column& HierarchySearch::Solve(const Context& context, int to) {
  const auto found = columns_.find({context, to});
  if (found != columns_.end()) return found->second;
  const int level = context.level;
  Column column(At(level, to + 1, 0, 0), Choice{kNever, 0, 0, 0, 0});
  for (int first = 0; first <= Places(level); ++first) column[At(level, to, first, 0)].value = 0;
  for (int from = to - 1; from >= 0; --from) {
    if (ideals_.Within(from, to)) FillFrom(context, to, from, column);
  }
  return columns_.emplace(Key{context, to}, std::move(column)).first->second;
}

void HierarchySearch::FillFrom(const Context& context, int to, int from, Column& column) {
  const int level = context.level, places = Places(level), below = Used(level - 1);
  const double rate = options_.rule.levels[static_cast<size_t>(level) - 1].bytes_per_ms;
  const int all = ideals_.size() - 1;
  // Without memory and speeds the insides of all units are alike.
  const bool alike = !options_.memory_bytes && !counted_ && context.speeds.empty();
  for (int border = from + 1; border <= to; ++border) {
    if (!ideals_.Within(from, border)) continue;
    if (border != to && !ideals_.Within(border, to)) continue;
    const auto weights = static_cast<double>(Sums(from, border).parameter_bytes);
    const auto crossing = static_cast<double>(ideals_.crossing_bytes(border));
    const double border_ps =
        border == to || border == all || for_memory_ ? 0 : RoundPs(kPsPerMs * 2 * crossing / rate);
    double known = -1;
    for (int units = 1; units <= (options_.replicate ? places : 1); ++units) {
      const double sync = for_memory_ ? 0 : kPsPerMs * 2 * (units - 1) * weights / rate;
      for (int first = places - units; first >= 0; --first) {
        for (int behind = 0; behind <= Used(level); ++behind) {
          const double after = column[At(level, border, first + units, behind)].value;
          if (after == kNever) continue;
          if (alike && known < 0) known = Value(Inside(context, 0, 1, 0), from, border, 0);
          const Context inside = alike ? Context{} : Inside(context, first, units, behind);
          for (int own = 0; own <= below && behind + units * own <= Used(level); ++own) {
            Choice& best = column[At(level, from, first, behind + units * own)];
            if (std::max(border_ps, after) >= best.value) continue;
            const double within = alike ? known : Value(inside, from, border, own);
            if (within == kNever) continue;
            const double stage = for_memory_ ? within : RoundPs(std::max(within, sync) / units);
            const double value = std::max({stage, border_ps, after});
            if (value < best.value) best = {value, border, first, units, own};
          }
        }
      }
    }
  }
  // Units in front may stay idle.
  for (int first = places - 1; first >= 0; --first) {
    for (int used = 0; used <= Used(level); ++used) {
      const Choice& later = column[At(level, from, first + 1, used)];
      Choice& best = column[At(level, from, first, used)];
      if (later.value < best.value) best = later;
    }
  }
}

// The top unit, and how many of its workers its best plan uses.
double HierarchySearch::Find(int& used, Context& top) {
  top = {};
  top.level = static_cast<int>(units_.size()) - 1;
  if (!options_.rule.speeds.empty()) {
    top.speeds.assign(options_.rule.speeds.begin(), options_.rule.speeds.begin() + Size(top.level));
  }
  double best = kNever;
  for (int workers = 0; workers <= Used(top.level); ++workers) {
    if (!required_.empty() && workers != Sum(options_.replicas)) continue;
    const double value = Value(top, 0, ideals_.size() - 1, workers);
    if (value >= best) continue;
    best = value;
    used = workers;
  }
  return best;
}

std::optional<SearchResult> HierarchySearch::Run() {
  int used = 0;
  Context top;
  const double best = Find(used, top);
  if (best == kNever) return std::nullopt;
  SearchResult result;
  Emit(top, 0, ideals_.size() - 1, used, {0}, result.stages);
  result.bottleneck_ms = result.lower_bound_ms = best / kPsPerMs;
  return result;
}

int64_t HierarchySearch::LeastMemory() {
  for_memory_ = true;
  int used = 0;
  Context top;
  const double bytes = Find(used, top);
  return bytes == kNever ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(bytes);
}

// Appends the stages of a unit's pipeline; `bases` are the first workers of all units that run it,
// in the order in which they take minibatches.
void HierarchySearch::Emit(const Context& context, int from, int to, int used,
                           const std::vector<int>& bases, std::vector<StageChoice>& stages) {
  if (context.level == 0) {
    StageChoice stage;
    stage.layers = ideals_.LayersBetween(from, to);
    stage.first_worker = *std::min_element(bases.begin(), bases.end());
    stage.replicas = static_cast<int>(bases.size());
    stage.recompute = Recomputes(context, Sums(from, to));
    for (int r = 0; r < stage.replicas; ++r) {
      if (bases[r] != stage.first_worker + r) stage.workers = bases;
    }
    stages.push_back(std::move(stage));
    return;
  }
  for (int first = 0; from != to;) {
    const Choice choice = Solve(context, to)[At(context.level, from, first, used)];
    const int behind = counted_ ? used - choice.units * choice.inside : 0;
    std::vector<int> inner;
    for (int u = choice.first; u < choice.first + choice.units; ++u) {
      for (const int base : bases) inner.push_back(base + u * Size(context.level - 1));
    }
    Emit(Inside(context, choice.first, choice.units, behind), from, choice.border, choice.inside,
         inner, stages);
    from = choice.border;
    first = choice.first + choice.units;
    used = behind;
  }
}

}  // namespace pd
