#include "partition/search.h"

#include <algorithm>
#include <map>
#include <optional>

#include "partition/random_graph.h"
#include "support/catch.h"

namespace pd {
namespace {

// An exhaustive planner, written from the formulas of the cost models on the layers themselves: no
// prefix sums, no dynamic programming, doubles instead of integers.
class Exhaustive {
 public:
  struct Candidate {
    double bottleneck = 0;
    std::vector<StageChoice> stages;
    int64_t memory = 0;

    int workers() const {
      int sum = 0;
      for (const StageChoice& stage : stages) sum += stage.replicas;
      return sum;
    }
    std::vector<int> cuts() const {
      std::vector<int> out;
      for (const StageChoice& stage : stages) out.push_back(stage.end);
      return out;
    }
    std::vector<int> replicas() const {
      std::vector<int> out;
      for (const StageChoice& stage : stages) out.push_back(stage.replicas);
      return out;
    }
  };

  Exhaustive(const std::vector<LayerCost>& layers, const SearchOptions& options)
      : layers_(layers), options_(options) {
    for (size_t l = 0; l < layers.size(); ++l) index_[layers[l].name] = static_cast<int>(l);
  }

  std::optional<Candidate> Best() {
    Extend({}, 0, options_.max_workers);
    return best_;
  }
  int64_t least_memory() const { return least_memory_; }

 private:
  void Extend(std::vector<StageChoice> stages, int begin, int workers) {
    if (begin == static_cast<int>(layers_.size())) return Consider(stages);
    for (int end = begin + 1; end <= static_cast<int>(layers_.size()); ++end) {
      for (int m = 1; m <= (options_.replicate ? workers : std::min(workers, 1)); ++m) {
        stages.push_back({begin, end, m});
        Extend(stages, end, workers - m);
        stages.pop_back();
      }
    }
  }

  bool Reads(int reader, int producer) const {
    const auto& inputs = layers_[reader].inputs;
    return std::find(inputs.begin(), inputs.end(), layers_[producer].name) != inputs.end();
  }
  bool ReadIn(int producer, int begin, int end) const {
    for (int l = begin; l < end; ++l) {
      if (Reads(l, producer)) return true;
    }
    return false;
  }
  int count() const { return static_cast<int>(layers_.size()); }

  double in(const StageChoice& s) const {
    double bytes = 0;
    for (int l = 0; l < s.begin; ++l) {
      if (ReadIn(l, s.begin, s.end)) bytes += static_cast<double>(layers_[l].activation_bytes);
    }
    return bytes;
  }
  double out(const StageChoice& s) const {
    double bytes = 0;
    for (int l = s.begin; l < s.end; ++l) {
      if (ReadIn(l, s.end, count())) bytes += static_cast<double>(layers_[l].activation_bytes);
    }
    return bytes;
  }
  double crossing(int cut) const {
    double bytes = 0;
    for (int l = 0; l < cut; ++l) {
      if (ReadIn(l, cut, count())) bytes += static_cast<double>(layers_[l].activation_bytes);
    }
    return bytes;
  }

  double StageCost(const StageChoice& s) const {
    const double m = s.replicas, b = options_.rule.bytes_per_ms;
    double compute = 0, weights = 0;
    for (int l = s.begin; l < s.end; ++l) {
      const LayerCost& layer = layers_[l];
      compute += layer.forward_ms + layer.backward_ms;
      if (options_.rule.model == CostModel::kRuntime) compute += layer.update_ms.value_or(0);
      weights += static_cast<double>(layer.parameter_bytes);
    }
    if (options_.rule.model == CostModel::kArxiv) {
      const double border = s.end < count() ? 2 * crossing(s.end) / b : 0;
      return std::max(border, std::max(compute, 4 * (m - 1) * weights / (m * b)) / m);
    }
    const double sent = out(s) + in(s);      // Outputs, and gradients of inputs.
    const double received = in(s) + out(s);  // Inputs, and gradients of outputs.
    const double all_reduce = 2 * (m - 1) / m * weights;
    return std::max({compute, (sent + all_reduce) / b, (received + all_reduce) / b}) / m;
  }

  int64_t MemoryOf(const StageChoice& s, int depth) const {
    int64_t weights = 0, stash = 0, largest = 0, heaviest = 0;
    for (int l = s.begin; l < s.end; ++l) {
      weights += layers_[l].parameter_bytes;
      stash += layers_[l].stash_bytes.value_or(layers_[l].activation_bytes);
      largest = std::max(largest, layers_[l].activation_bytes);
      heaviest = std::max(heaviest, layers_[l].parameter_bytes);
    }
    const auto received = static_cast<int64_t>(in(s)), sent = static_cast<int64_t>(out(s));
    const int64_t bucket = std::min<int64_t>(weights, 256 * 1024 + heaviest);
    const int64_t part = std::min<int64_t>(60 * 1024, bucket / s.replicas);
    const int64_t parts = s.replicas == 1 ? 0 : 32 * s.replicas * part;
    return depth * (weights + stash + received + sent) + weights /* gradients */ +
           weights /* momentum */ + parts + 2 * received /* ahead */ +
           2 * sent /* their gradients */ + 2 * received /* gradients sent */ + 2 * largest;
  }

  void Consider(const std::vector<StageChoice>& stages) {
    Candidate candidate{0, stages, 0};
    for (size_t s = 0; s < stages.size(); ++s) {
      candidate.bottleneck = std::max(candidate.bottleneck, StageCost(stages[s]));
      int behind = 0;
      for (size_t t = s; t < stages.size(); ++t) behind += stages[t].replicas;
      int depth = 0;  // ⌈behind / r⌉, counted.
      while (depth * stages[s].replicas < behind) ++depth;
      if (options_.one_in_flight) depth = 1;
      candidate.memory = std::max(candidate.memory, MemoryOf(stages[s], depth));
    }
    least_memory_ = std::min(least_memory_, candidate.memory);
    if (options_.memory_bytes && candidate.memory > *options_.memory_bytes) return;
    if (!best_ || Better(candidate, *best_)) best_ = candidate;
  }

  // The stated rule: bottleneck, workers, stages, earliest cuts, fewest replicas first.
  static bool Better(const Candidate& a, const Candidate& b) {
    const double difference = a.bottleneck - b.bottleneck;
    if (std::abs(difference) > 1e-9 * b.bottleneck) return difference < 0;
    if (a.workers() != b.workers()) return a.workers() < b.workers();
    if (a.stages.size() != b.stages.size()) return a.stages.size() < b.stages.size();
    if (a.cuts() != b.cuts()) return a.cuts() < b.cuts();
    return a.replicas() < b.replicas();
  }

  const std::vector<LayerCost>& layers_;
  const SearchOptions& options_;
  std::map<std::string, int> index_;
  std::optional<Candidate> best_;
  int64_t least_memory_ = INT64_MAX;
};

SearchOptions RandomOptions(std::mt19937& random, CostModel model) {
  SearchOptions options;
  const double rates[] = {250, 500, 1000, 3000, 1e6, 1e27};
  options.rule = {model, rates[random() % 6]};
  options.max_workers = static_cast<int>(Uniform(random, 1, 6));
  return options;
}

void CompareWithExhaustive(CostModel model, bool memory) {
  std::mt19937 random(model == CostModel::kRuntime ? 11 : 12);
  for (int round = 0; round < (memory ? 700 : 2000); ++round) {
    CAPTURE(round);
    const auto layers =
        RandomLayers(random, static_cast<int>(Uniform(random, 1, 7)), round % 2 == 1);
    SearchOptions options = RandomOptions(random, model);
    // Few plans with replicas of many weights fit the small limits, all fit the large ones.
    if (memory) options.memory_bytes = Uniform(random, 5, round % 3 == 0 ? 1500 : 150) * 1000;
    if (memory) options.one_in_flight = Uniform(random, 0, 3) == 0;
    options.replicate = Uniform(random, 0, 4) > 0;
    Exhaustive exhaustive(layers, options);
    const auto expected = exhaustive.Best();
    const CostGraph graph = MakeCostGraph(layers);
    const auto found = FindBestPlan(graph, options);
    REQUIRE(found.has_value() == expected.has_value());
    REQUIRE(SmallestMemory(graph, options) == exhaustive.least_memory());
    if (!found) continue;
    REQUIRE(found->bottleneck_ms == Approx(expected->bottleneck).epsilon(1e-9));
    REQUIRE(found->stages == expected->stages);
  }
}

TEST_CASE("the runtime plan equals exhaustive enumeration, ties included") {
  CompareWithExhaustive(CostModel::kRuntime, false);
}

TEST_CASE("the arxiv plan equals exhaustive enumeration, ties included") {
  CompareWithExhaustive(CostModel::kArxiv, false);
}

TEST_CASE("within a memory limit the plan equals exhaustive enumeration") {
  CompareWithExhaustive(CostModel::kRuntime, true);
  CompareWithExhaustive(CostModel::kArxiv, true);
}

double Bottleneck(const CostGraph& graph, const SearchOptions& options) {
  return FindBestPlan(graph, options)->bottleneck_ms;
}

TEST_CASE("more workers or more bandwidth never make the bottleneck larger") {
  for (const CostModel model : {CostModel::kRuntime, CostModel::kArxiv}) {
    std::mt19937 random(13);
    for (int round = 0; round < 60; ++round) {
      CAPTURE(round);
      const CostGraph graph = MakeCostGraph(RandomLayers(random, 20, round % 2 == 1));
      SearchOptions options;
      double before = 1e300;
      for (int n = 1; n <= 12; ++n) {
        options.rule = {model, 700};
        options.max_workers = n;
        const double now = Bottleneck(graph, options);
        REQUIRE(now <= before);
        before = now;
      }
      before = 1e300;
      for (double rate = 10; rate < 1e8; rate *= 3) {
        options.rule = {model, rate};
        options.max_workers = 6;
        const double now = Bottleneck(graph, options);
        REQUIRE(now <= before);
        before = now;
      }
    }
  }
}

TEST_CASE("more memory never makes the bottleneck larger, and the smallest memory is exact") {
  std::mt19937 random(14);
  for (int round = 0; round < 40; ++round) {
    CAPTURE(round);
    const CostGraph graph = MakeCostGraph(RandomLayers(random, 15, round % 2 == 1));
    SearchOptions options;
    options.rule = {CostModel::kRuntime, 900};
    options.max_workers = 8;
    const int64_t least = SmallestMemory(graph, options);
    options.memory_bytes = least - 1;
    REQUIRE_FALSE(FindBestPlan(graph, options).has_value());
    double before = 1e300;
    for (int64_t limit = least; limit < 4 * least; limit += 1 + least / 7) {
      options.memory_bytes = limit;
      const double now = Bottleneck(graph, options);
      REQUIRE(now <= before);
      before = now;
    }
  }
}

TEST_CASE(
    "of equally fast plans the one with fewer workers, fewer stages and earlier cuts is taken") {
  const auto chain = [](const std::vector<double>& times) {
    std::vector<LayerCost> layers;
    for (size_t l = 0; l < times.size(); ++l) {
      LayerCost layer;
      layer.name = std::string(1, static_cast<char>('a' + l));
      layer.forward_ms = times[l];
      layers.push_back(layer);
    }
    return layers;
  };
  SearchOptions options;
  options.rule = {CostModel::kRuntime, 1e27};
  const auto plan = [&](const std::vector<double>& times, int workers, bool replicate) {
    options.max_workers = workers;
    options.replicate = replicate;
    return FindBestPlan(MakeCostGraph(chain(times)), options)->stages;
  };
  // The layer of 6 bounds a straight pipeline: two workers are as good as three, and a worker stays
  // idle.
  CHECK(plan({2, 6, 2, 2}, 4, false) == std::vector<StageChoice>{{0, 1, 1}, {1, 2, 1}, {2, 4, 1}});
  CHECK(plan({6, 3, 3}, 3, false) == std::vector<StageChoice>{{0, 1, 1}, {1, 3, 1}});
  // 4 and 4, or both replicas on everything: one stage.
  CHECK(plan({4, 4}, 2, true) == std::vector<StageChoice>{{0, 2, 2}});
  // The layer of no time may stand left or right of the cut.
  CHECK(plan({4, 0, 4}, 2, false) == std::vector<StageChoice>{{0, 1, 1}, {1, 3, 1}});
}

TEST_CASE("more workers than layers: the plan replicates, and straight leaves them idle") {
  std::mt19937 random(15);
  const CostGraph graph = MakeCostGraph(RandomLayers(random, 2, false));
  SearchOptions options;
  options.rule = {CostModel::kRuntime, 1e27};
  options.max_workers = 9;
  int workers = 0;
  const auto found = FindBestPlan(graph, options);
  for (const StageChoice& stage : found->stages) workers += stage.replicas;
  CHECK(workers == 9);
  options.replicate = false;
  CHECK(FindBestPlan(graph, options)->stages.size() == 2);
}

TEST_CASE(
    "forty residual blocks, forty dense layers and two hundred layers on 64 workers are planned") {
  std::vector<LayerCost> residual, dense;
  for (int l = 0; l < 120; ++l) {
    LayerCost layer;
    layer.name = fmt::format("layer{}", l);
    layer.forward_ms = 1 + l % 5;
    layer.activation_bytes = 1000 * (1 + l % 3);
    if (l > 0) layer.inputs.push_back(residual[static_cast<size_t>(l) - 1].name);
    if (l % 3 == 2 && l > 2) layer.inputs.push_back(residual[static_cast<size_t>(l) - 3].name);
    residual.push_back(layer);
    if (l >= 40) continue;
    layer.inputs.clear();
    for (const LayerCost& before : dense) layer.inputs.push_back(before.name);
    dense.push_back(layer);
  }
  std::mt19937 random(16);
  SearchOptions options;
  options.rule = {CostModel::kArxiv, 5000};
  options.max_workers = 64;
  for (const auto& layers : {residual, dense, RandomLayers(random, 200, true)}) {
    const CostGraph graph = MakeCostGraph(layers);
    const auto found = FindBestPlan(graph, options);
    REQUIRE(found.has_value());
    CHECK(found->stages.front().begin == 0);
    CHECK(found->stages.back().end == graph.size());
  }
}

}  // namespace
}  // namespace pd
