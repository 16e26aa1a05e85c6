#include "partition/hierarchy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "partition/random_graph.h"
#include "support/catch.h"

namespace pd {
namespace {

// Every nested pipeline of a few layers, with the recurrence of SOSP 2019 evaluated on each.
class Nested {
 public:
  struct Stage;
  using Pipeline = std::vector<Stage>;
  struct Stage {
    unsigned from = 0, to = 0;  // masks of the layers before it, and of those with it
    int first = 0, units = 1;
    Pipeline inside;
  };

  Nested(const CostGraph& graph, const SearchOptions& options) : graph_(graph), options_(options) {
    int size = 1;
    for (const CostRule::Level& level : options.rule.levels) {
      units_.push_back(std::min(level.workers, options.max_workers / size));
      if (units_.back() == 0) {
        units_.pop_back();
        break;
      }
      size *= units_.back();
    }
  }

  // In picoseconds; infinite if nothing fits.
  double Best() {
    double best = std::numeric_limits<double>::infinity();
    std::vector<double> speeds = options_.rule.speeds;
    if (speeds.empty()) speeds.assign(static_cast<size_t>(options_.max_workers), 1);
    const auto level = static_cast<int>(units_.size());
    for (const Pipeline& pipeline : All(level, 0, (1U << graph_.size()) - 1)) {
      flat_.clear();
      Flatten(pipeline, level, 1);
      std::vector<int> replicas;
      for (const Flat& flat : flat_) replicas.push_back(flat.replicas);
      if (!options_.replicas.empty() && replicas != options_.replicas) continue;
      if (!Fits()) continue;
      next_ = 0;
      best = std::min(best, Value(pipeline, level, speeds));
    }
    return best;
  }
  int64_t least_memory() const { return least_memory_; }

 private:
  const std::vector<Pipeline>& All(int level, unsigned from, unsigned to) {
    const auto [found, added] = all_.try_emplace({level, from, to});
    std::vector<Pipeline>& out = found->second;
    if (!added) return out;
    if (level == 0) {
      if (Separates(from, to)) out.push_back({Stage{from, to, 0, 1, {}}});
      return out;
    }
    std::vector<Pipeline> plans;
    Pipeline begun;
    Extend(level, from, to, 0, begun, plans);
    return all_[{level, from, to}] = plans;
  }

  void Extend(int level, unsigned from, unsigned to, int place, Pipeline& begun,
              std::vector<Pipeline>& plans) {
    if (from == to) {
      plans.push_back(begun);
      return;
    }
    const unsigned left = to & ~from;
    for (unsigned mask = left; mask != 0; mask = (mask - 1) & left) {
      bool closed = true;
      for (int l = 0; l < graph_.size(); ++l) {
        for (const int producer : graph_.layers[l].producers) {
          if ((mask >> l & 1) != 0 && ((from | mask) >> producer & 1) == 0) closed = false;
        }
      }
      if (!closed) continue;
      const std::vector<Pipeline> insides = All(level - 1, from, from | mask);
      const int places = units_[static_cast<size_t>(level) - 1];
      for (int units = 1; units <= (options_.replicate ? places : 1); ++units) {
        // Without different speeds places are alike.
        for (int first = place; first + units <= places; ++first) {
          if (first > place && options_.rule.speeds.empty()) break;
          for (const Pipeline& inside : insides) {
            begun.push_back({from, from | mask, first, units, inside});
            Extend(level, from | mask, to, first + units, begun, plans);
            begun.pop_back();
          }
        }
      }
    }
  }

  std::vector<int> Layers(unsigned mask) const {
    std::vector<int> layers;
    for (int l = 0; l < graph_.size(); ++l) {
      if ((mask >> l & 1) != 0) layers.push_back(l);
    }
    return layers;
  }

  bool Separates(unsigned from, unsigned to) const {
    for (const int l : options_.cut_after) {
      for (const int consumer : graph_.layers[l].consumers) {
        const unsigned inside = to & ~from;
        if ((inside >> l & 1) != 0 && (inside >> consumer & 1) != 0) return false;
      }
    }
    return true;
  }

  struct Flat {
    unsigned from = 0, to = 0;
    int replicas = 1;
    bool recompute = false;
  };

  void Flatten(const Pipeline& pipeline, int level, int copies) {
    for (const Stage& stage : pipeline) {
      if (level == 0) {
        flat_.push_back({stage.from, stage.to, copies, false});
      } else {
        Flatten(stage.inside, level - 1, copies * stage.units);
      }
    }
  }

  // Also sets the flags of stages that recompute.
  bool Fits() {
    bool fits = true;
    int64_t need = 0;
    for (size_t s = 0; s < flat_.size(); ++s) {
      int behind = 0, depth = 0;
      for (size_t t = s; t < flat_.size(); ++t) behind += flat_[t].replicas;
      while (depth * flat_[s].replicas < behind) ++depth;
      if (options_.one_in_flight) depth = 1;
      const StageSums sums = SumsOf(graph_, Layers(flat_[s].to & ~flat_[s].from), s == 0);
      const int64_t plain = MemoryEstimate(sums, flat_[s].replicas).Bytes(depth);
      const int64_t less = MemoryEstimate(sums, flat_[s].replicas, true).Bytes(depth);
      const int64_t limit = options_.memory_bytes.value_or(plain);
      flat_[s].recompute = plain > limit;
      fits = fits && (options_.allow_recompute ? less : plain) <= limit;
      need = std::max(need, options_.allow_recompute ? less : plain);
    }
    least_memory_ = std::min(least_memory_, need);
    return fits;
  }

  double Value(const Pipeline& pipeline, int level, const std::vector<double>& speeds) {
    double largest = 0;
    for (const Stage& stage : pipeline) {
      const StageSums sums = SumsOf(graph_, Layers(stage.to & ~stage.from), false);
      if (level == 0) {
        const bool again = flat_[next_++].recompute;
        return std::nearbyint(
            static_cast<double>(sums.forward_ps * (again ? 2 : 1) + sums.backward_ps) / speeds[0]);
      }
      int size = 1;
      for (int k = 0; k + 1 < level; ++k) size *= units_[static_cast<size_t>(k)];
      std::vector<double> slowest(static_cast<size_t>(size), 1e300);
      for (int u = stage.first; u < stage.first + stage.units; ++u) {
        for (int w = 0; w < size; ++w) {
          slowest[w] = std::min(slowest[w], speeds[static_cast<size_t>(u * size + w)]);
        }
      }
      const double rate = options_.rule.levels[static_cast<size_t>(level) - 1].bytes_per_ms;
      const double inside = Value(stage.inside, level - 1, slowest);
      const double sync =
          1e9 * 2 * (stage.units - 1) * static_cast<double>(sums.parameter_bytes) / rate;
      largest = std::max(largest, std::nearbyint(std::max(inside, sync) / stage.units));
      if (&stage == &pipeline.back()) continue;
      std::vector<bool> before(static_cast<size_t>(graph_.size()));
      for (const int l : Layers(stage.to)) before[l] = true;
      const auto crossing = static_cast<double>(CrossingBytes(graph_, before));
      largest = std::max(largest, std::nearbyint(1e9 * 2 * crossing / rate));
    }
    return largest;
  }

  const CostGraph& graph_;
  const SearchOptions& options_;
  std::vector<int> units_;
  std::map<std::tuple<int, unsigned, unsigned>, std::vector<Pipeline>> all_;
  std::vector<Flat> flat_;
  size_t next_ = 0;
  int64_t least_memory_ = std::numeric_limits<int64_t>::max();
};

SearchOptions RandomOptions(std::mt19937& random, int layers) {
  SearchOptions options;
  options.rule.model = CostModel::kArxiv;
  const double rate = static_cast<double>(Uniform(random, 1, 4)) * 1000;
  options.rule.levels = {{static_cast<int>(Uniform(random, 2, 3)), rate}, {2, rate / 2}};
  if (Uniform(random, 0, 4) == 0) options.rule.levels = {{2, rate}, {2, rate / 2}, {2, rate / 3}};
  options.rule.bytes_per_ms = rate;
  options.max_workers = static_cast<int>(Uniform(random, 2, 6));
  options.replicate = Uniform(random, 0, 4) > 0;
  if (Uniform(random, 0, 2) == 0) {
    options.memory_bytes = Uniform(random, 20, Uniform(random, 0, 1) == 0 ? 1500 : 150) * 1000;
    options.one_in_flight = Uniform(random, 0, 5) == 0;
    options.allow_recompute = Uniform(random, 0, 1) == 0;
  }
  if (Uniform(random, 0, 2) == 0) {
    const double speeds[] = {0.5, 1, 1, 2};
    for (int w = 0; w < options.max_workers; ++w) {
      options.rule.speeds.push_back(speeds[random() % 4]);
    }
  }
  if (Uniform(random, 0, 3) == 0) {
    options.cut_after.push_back(static_cast<int>(Uniform(random, 0, layers - 1)));
  }
  int named = 1;
  for (const CostRule::Level& level : options.rule.levels) named *= level.workers;
  for (int left = std::min(named, options.max_workers); left > 0 && Uniform(random, 0, 3) == 0;) {
    options.replicas.push_back(static_cast<int>(Uniform(random, 1, left)));
    left -= options.replicas.back();
  }
  return options;
}

TEST_CASE("on several levels the arxiv plan equals exhaustive enumeration of nested pipelines") {
  std::mt19937 random(31);
  for (int round = 0; round < 5000; ++round) {
    CAPTURE(round);
    const bool chain = round % 2 == 0;
    const int count = static_cast<int>(round % 500 == 0 ? 6 : Uniform(random, 1, 4));
    const auto layers = RandomLayers(random, count, !chain, round % 4 == 1);
    const SearchOptions options = RandomOptions(random, count);
    const CostGraph graph = MakeCostGraph(layers);
    Nested nested(graph, options);
    const double expected = nested.Best();
    const auto found = FindBestPlan(graph, options);
    REQUIRE(found.has_value() == std::isfinite(expected));
    if (options.memory_bytes) {
      REQUIRE(SmallestMemory(graph, options) == nested.least_memory());
    }
    if (!found) continue;
    REQUIRE(std::abs(found->bottleneck_ms * 1e9 - expected) <= 2);
    std::set<int> seen_layers, seen_workers;
    for (const StageChoice& stage : found->stages) {
      for (const int l : stage.layers) REQUIRE(seen_layers.insert(l).second);
      for (int r = 0; r < stage.replicas; ++r) {
        REQUIRE(stage.worker(r) < options.max_workers);
        REQUIRE(seen_workers.insert(stage.worker(r)).second);
      }
    }
    REQUIRE(static_cast<int>(seen_layers.size()) == graph.size());
  }
}

TEST_CASE("replicas of a pipeline inside machines stay on their machine for every minibatch") {
  // Two machines of two workers; between machines only weights are cheap to move.
  std::vector<LayerCost> layers(2);
  for (size_t l = 0; l < 2; ++l) {
    layers[l].name = fmt::format("layer{}", l);
    layers[l].forward_ms = layers[l].backward_ms = 5;
    layers[l].parameter_bytes = l == 0 ? 100 : 90'000;
  }
  layers[0].activation_bytes = 1000;
  SearchOptions options;
  options.rule.model = CostModel::kArxiv;
  options.rule.levels = {{2, 1e4}, {2, 1e5}};
  options.rule.bytes_per_ms = 1e4;
  options.max_workers = 4;
  const auto found = FindBestPlan(MakeCostGraph(layers), options);
  REQUIRE(found->stages.size() == 2);
  for (int r = 0; r < 2; ++r) {
    CHECK(found->stages[0].worker(r) / 2 == r);
    CHECK(found->stages[1].worker(r) / 2 == r);
  }
  CHECK(found->bottleneck_ms == Approx(10.0 / 2));
}

}  // namespace
}  // namespace pd
