#include "partition/search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "partition/exhaustive.h"
#include "partition/links.h"
#include "partition/random_graph.h"
#include "support/catch.h"

namespace pd {
namespace {

StageChoice Stage(int begin, int end, int first_worker, int replicas) {
  StageChoice stage{{}, first_worker, replicas};
  for (int l = begin; l < end; ++l) stage.layers.push_back(l);
  return stage;
}
enum Kind { kPlain, kMemory, kSpeeds, kTwoLevels };

SearchOptions RandomOptions(std::mt19937& random, CostModel model, Kind kind, int workers) {
  SearchOptions options;
  const double rates[] = {250, 500, 1000, 3000, 1e6, 1e27};
  options.rule.model = model;
  options.rule.bytes_per_ms = rates[random() % 6];
  options.max_workers = workers;
  options.replicate = Uniform(random, 0, 4) > 0;
  if (kind == kMemory || (kind != kPlain && Uniform(random, 0, 3) == 0)) {
    // Few plans with replicas of many weights fit the small limits, all fit the large ones.
    options.memory_bytes = Uniform(random, 5, Uniform(random, 0, 2) == 0 ? 1500 : 150) * 1000;
    options.one_in_flight = Uniform(random, 0, 5) == 0;
    options.allow_recompute = Uniform(random, 0, 1) == 0;
  }
  if (kind == kSpeeds || (kind == kTwoLevels && Uniform(random, 0, 3) == 0)) {
    const double speeds[] = {0.5, 1, 1, 1.5, 2};
    for (int w = 0; w < workers; ++w) options.rule.speeds.push_back(speeds[random() % 5]);
  }
  if (kind == kTwoLevels) {
    const double rate = options.rule.bytes_per_ms;
    const double slower = rate / static_cast<double>(Uniform(random, 1, 4));
    options.rule.levels = {{static_cast<int>(Uniform(random, 2, 3)), rate}, {3, slower}};
    if (options.rule.levels[0].workers == 2 && Uniform(random, 0, 3) == 0) {
      options.rule.levels = {{2, rate}, {2, slower}, {2, slower / 2}};
    }
  } else if (Uniform(random, 0, 1) == 0) {
    options.rule.levels = {{workers, options.rule.bytes_per_ms}};
  }
  for (CostRule::Level& level : options.rule.levels) {
    level.latency_ms = static_cast<double>(Uniform(random, 0, 3) * Uniform(random, 0, 4));
  }
  return options;
}

// Cuts and replica counts that a user fixes.
void FixSome(std::mt19937& random, int layers, SearchOptions& options) {
  if (Uniform(random, 0, 3) == 0) {
    options.cut_after.push_back(static_cast<int>(Uniform(random, 0, layers - 1)));
  }
  if (Uniform(random, 0, 5) > 0 || !options.replicate) return;
  for (int left = options.max_workers; left > 0 && Uniform(random, 0, 3) > 0;) {
    options.replicas.push_back(static_cast<int>(Uniform(random, 1, left)));
    left -= options.replicas.back();
  }
}

void CompareOne(const std::vector<LayerCost>& layers, const SearchOptions& options, bool memory) {
  Exhaustive exhaustive(layers, options);
  const auto expected = exhaustive.Best();
  const CostGraph graph = MakeCostGraph(layers);
  const auto found = FindBestPlan(graph, options);
  REQUIRE(found.has_value() == expected.has_value());
  if (memory) REQUIRE(SmallestMemory(graph, options) == exhaustive.least_memory());
  if (!found) return;
  REQUIRE(std::llround(found->bottleneck_ms * 1e9) == expected->ps);
  REQUIRE(found->exact);
  REQUIRE(found->lower_bound_ms == found->bottleneck_ms);
  std::vector<StageChoice> stages;
  for (const Exhaustive::Placed& placed : expected->stages) {
    stages.push_back({{}, placed.first, placed.replicas, placed.recompute});
    for (int l = 0; l < graph.size(); ++l) {
      if ((placed.layers >> l & 1) != 0) stages.back().layers.push_back(l);
    }
  }
  REQUIRE(found->stages == stages);
  double largest = 0;
  for (const ResourceCost& cost : ResourceCosts(graph, stages, options.rule)) {
    largest = std::max(largest, cost.ms);
  }
  REQUIRE(largest == found->bottleneck_ms);
}

// Most cases are small, so that there are many; some have 9 layers and 6 workers.
void CompareWithExhaustive(CostModel model, Kind kind, int rounds) {
  std::mt19937 random(static_cast<unsigned>(100 + 10 * static_cast<int>(model) + kind));
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(model, kind, round);
    const bool large = round % 50 == 0;
    const bool chain = round % 3 == 0, loose = round % 3 == 1;
    const int count = static_cast<int>(large ? 9 : Uniform(random, 1, chain ? 7 : 5));
    const int workers = static_cast<int>(large && !loose ? 6 : Uniform(random, 1, chain ? 5 : 4));
    const auto layers = RandomLayers(random, count, !chain, loose);
    SearchOptions options = RandomOptions(random, model, kind, workers);
    FixSome(random, count, options);
    CompareOne(layers, options, kind == kMemory);
  }
}

constexpr int kRounds = 5000;

TEST_CASE("the runtime plan equals exhaustive enumeration, ties included") {
  CompareWithExhaustive(CostModel::kRuntime, kPlain, kRounds);
}

TEST_CASE("the arxiv plan equals exhaustive enumeration, ties included") {
  CompareWithExhaustive(CostModel::kArxiv, kPlain, kRounds);
}

TEST_CASE("within a memory limit the runtime plan equals exhaustive enumeration") {
  CompareWithExhaustive(CostModel::kRuntime, kMemory, kRounds);
}

TEST_CASE("within a memory limit the arxiv plan equals exhaustive enumeration") {
  CompareWithExhaustive(CostModel::kArxiv, kMemory, kRounds);
}

TEST_CASE("on workers of different speeds the runtime plan equals exhaustive enumeration") {
  CompareWithExhaustive(CostModel::kRuntime, kSpeeds, kRounds);
}

TEST_CASE("on workers of different speeds the arxiv plan equals exhaustive enumeration") {
  CompareWithExhaustive(CostModel::kArxiv, kSpeeds, kRounds);
}

TEST_CASE("on machines with links of their own the runtime plan equals exhaustive enumeration") {
  CompareWithExhaustive(CostModel::kRuntime, kTwoLevels, kRounds);
}

double Bottleneck(const CostGraph& graph, const SearchOptions& options) {
  const auto found = FindBestPlan(graph, options);
  return found ? found->bottleneck_ms : std::numeric_limits<double>::infinity();
}

void Widen(SearchOptions& options, double factor) {
  options.rule.bytes_per_ms *= factor;
  for (CostRule::Level& level : options.rule.levels) level.bytes_per_ms *= factor;
}

constexpr Kind kAll[] = {kPlain, kMemory, kSpeeds, kTwoLevels};

TEST_CASE("more workers, bandwidth or memory never make the bottleneck larger") {
  for (const CostModel model : {CostModel::kRuntime, CostModel::kArxiv}) {
    for (const Kind kind : kAll) {
      std::mt19937 random(13);
      for (int round = 0; round < 40; ++round) {
        CAPTURE(model, kind, round);
        const int count = kind == kTwoLevels ? 7 : 12;
        const CostGraph graph = MakeCostGraph(RandomLayers(random, count, round % 2 == 1));
        SearchOptions options = RandomOptions(random, model, kind, 6);
        double before = std::numeric_limits<double>::infinity();
        // Hierarchical plans take whole machines.
        const bool hierarchical = kind == kTwoLevels && model == CostModel::kArxiv;
        const int step = hierarchical ? 6 : 1;
        for (int n = step; n <= 6; n += step) {
          options.max_workers = n;
          const double now = Bottleneck(graph, options);
          REQUIRE(now <= before);
          before = now;
        }
        SearchOptions wide = options;
        for (int more = 0; more < 5; ++more) {
          const double now = Bottleneck(graph, wide);
          REQUIRE(now <= before);
          before = now;
          Widen(wide, 3);
        }
        if (!options.memory_bytes) continue;
        before = Bottleneck(graph, options);
        for (int more = 0; more < 6; ++more) {
          *options.memory_bytes += *options.memory_bytes / 3;
          const double now = Bottleneck(graph, options);
          REQUIRE(now <= before);
          before = now;
        }
      }
    }
  }
}

TEST_CASE("the plan is never worse than data parallelism, straight, or recomputing nothing") {
  for (const CostModel model : {CostModel::kRuntime, CostModel::kArxiv}) {
    for (const Kind kind : kAll) {
      std::mt19937 random(17);
      for (int round = 0; round < 60; ++round) {
        CAPTURE(model, kind, round);
        const CostGraph graph = MakeCostGraph(RandomLayers(random, 8, round % 2 == 1));
        SearchOptions options = RandomOptions(random, model, kind, 6);
        options.replicate = true;
        const double best = Bottleneck(graph, options);
        SearchOptions less = options;
        less.replicate = false;
        REQUIRE(best <= Bottleneck(graph, less));
        less = options;
        less.allow_recompute = false;
        REQUIRE(best <= Bottleneck(graph, less));
        less = options;
        less.cut_after = {2};
        REQUIRE(best <= Bottleneck(graph, less));
        if (kind == kTwoLevels && model == CostModel::kArxiv) continue;
        for (const std::vector<int>& replicas :
             {std::vector<int>{1}, {6}, {5, 1}, {2, 2}, {1, 1, 1, 1}}) {
          less = options;
          less.replicas = replicas;
          REQUIRE(best <= Bottleneck(graph, less));
        }
      }
    }
  }
}

TEST_CASE("the smallest memory is exact") {
  std::mt19937 random(14);
  for (int round = 0; round < 40; ++round) {
    CAPTURE(round);
    const CostGraph graph = MakeCostGraph(RandomLayers(random, 15, round % 2 == 1));
    SearchOptions options;
    options.rule = {CostModel::kRuntime, 900};
    options.max_workers = 8;
    options.allow_recompute = round % 4 < 2;
    const int64_t least = SmallestMemory(graph, options);
    options.memory_bytes = least - 1;
    REQUIRE_FALSE(FindBestPlan(graph, options).has_value());
    options.memory_bytes = least;
    REQUIRE(FindBestPlan(graph, options).has_value());
  }
}

TEST_CASE("stages recompute only where they would not fit otherwise") {
  std::mt19937 random(18);
  int recomputed = 0;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const CostGraph graph = MakeCostGraph(RandomLayers(random, 8, round % 2 == 1));
    SearchOptions options;
    options.rule = {CostModel::kRuntime, 1e6};
    options.max_workers = 4;
    options.allow_recompute = true;
    options.memory_bytes = SmallestMemory(graph, options) * 6 / 5;
    const auto found = FindBestPlan(graph, options);
    int behind = 0;
    for (size_t s = found->stages.size(); s-- > 0;) {
      const StageChoice& stage = found->stages[s];
      behind += stage.replicas;
      const int depth = (behind + stage.replicas - 1) / stage.replicas;
      const StageSums sums = SumsOf(graph, stage.layers, s == 0);
      const int64_t plain = MemoryEstimate(sums, stage.replicas).Bytes(depth);
      REQUIRE(stage.recompute == (plain > *options.memory_bytes));
      REQUIRE(MemoryEstimate(sums, stage.replicas, stage.recompute).Bytes(depth) <=
              *options.memory_bytes);
      recomputed += stage.recompute ? 1 : 0;
    }
  }
  CHECK(recomputed > 20);
}

TEST_CASE("a cut is kept, and so are the replicas of all stages") {
  std::mt19937 random(19);
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    const CostGraph graph = MakeCostGraph(RandomLayers(random, 10, true));
    SearchOptions options;
    options.rule = {CostModel::kRuntime, 1000};
    options.max_workers = 7;
    options.cut_after = {4};
    options.replicas = {3, 1, 2};
    const auto found = FindBestPlan(graph, options);
    REQUIRE(found->stages.size() == 3);
    std::vector<int> stage_of(10);
    for (size_t s = 0; s < 3; ++s) {
      CHECK(found->stages[s].replicas == options.replicas[s]);
      for (const int l : found->stages[s].layers) stage_of[l] = static_cast<int>(s);
    }
    for (const int consumer : graph.layers[4].consumers) CHECK(stage_of[consumer] > stage_of[4]);
  }
  SearchOptions options;
  options.rule = {CostModel::kRuntime, 1000};
  options.max_workers = 2;
  options.replicas = {2, 1};
  const CostGraph graph = MakeCostGraph(RandomLayers(random, 4, true));
  CHECK_THROWS_WITH(FindBestPlan(graph, options), ContainsSubstring("at most 2"));
}

TEST_CASE("a search cut short says so, with a bound that holds") {
  std::mt19937 random(20);
  int inexact[2] = {0, 0};
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const bool levels = round % 2 == 0;
    const CostGraph graph = MakeCostGraph(RandomLayers(random, 8, true, true));
    SearchOptions options =
        RandomOptions(random, CostModel::kRuntime, levels ? kTwoLevels : kPlain, 4);
    const auto exact = FindBestPlan(graph, options);
    SearchOptions shorter = options;
    if (levels) shorter.max_steps = 10;
    if (!levels) shorter.max_ideals = 12;
    const auto found = FindBestPlan(graph, shorter);
    if (!found || !exact) continue;
    CHECK(found->lower_bound_ms <= exact->bottleneck_ms);
    CHECK(found->bottleneck_ms >= exact->bottleneck_ms);
    CHECK(found->exact == (found->lower_bound_ms == found->bottleneck_ms));
    inexact[levels] += found->exact ? 0 : 1;
  }
  CHECK(inexact[0] > 10);
  CHECK(inexact[1] > 10);
}

TEST_CASE("the searches of a run share their steps, and without any left still find a plan") {
  std::mt19937 random(23);
  int spent = 0;
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    const CostGraph graph = MakeCostGraph(RandomLayers(random, 8, true, true));
    SearchOptions options = RandomOptions(random, CostModel::kRuntime, kTwoLevels, 4);
    const auto exact = FindBestPlan(graph, options);
    int64_t left = 1'000'000;
    options.steps_left = &left;
    const auto counted = FindBestPlan(graph, options);
    REQUIRE(counted.has_value() == exact.has_value());
    if (!exact) continue;
    CHECK(counted->stages == exact->stages);
    if (left < 1'000'000) ++spent;
    left = 0;
    const auto found = FindBestPlan(graph, options);
    REQUIRE(found.has_value());
    CHECK(left == 0);
    CHECK(found->lower_bound_ms <= exact->bottleneck_ms);
    CHECK(found->bottleneck_ms >= exact->bottleneck_ms);
  }
  CHECK(spent > 50);
}

TEST_CASE("twice the same search gives the same plan") {
  std::mt19937 random(21);
  const CostGraph graph = MakeCostGraph(RandomLayers(random, 30, true));
  for (const Kind kind : kAll) {
    const SearchOptions options = RandomOptions(random, CostModel::kRuntime, kind, 6);
    const auto first = FindBestPlan(graph, options), second = FindBestPlan(graph, options);
    REQUIRE(first.has_value() == second.has_value());
    if (first) CHECK(first->stages == second->stages);
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
  CHECK(plan({2, 6, 2, 2}, 4, false) ==
        std::vector<StageChoice>{Stage(0, 1, 0, 1), Stage(1, 2, 1, 1), Stage(2, 4, 2, 1)});
  CHECK(plan({6, 3, 3}, 3, false) ==
        std::vector<StageChoice>{Stage(0, 1, 0, 1), Stage(1, 3, 1, 1)});
  // 4 and 4, or both replicas on everything: one stage.
  CHECK(plan({4, 4}, 2, true) == std::vector<StageChoice>{Stage(0, 2, 0, 2)});
  // The layer of no time may stand left or right of the cut.
  CHECK(plan({4, 0, 4}, 2, false) ==
        std::vector<StageChoice>{Stage(0, 1, 0, 1), Stage(1, 3, 1, 1)});
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
    CHECK(found->exact);
    int planned = 0;
    for (const StageChoice& stage : found->stages) planned += static_cast<int>(stage.layers.size());
    CHECK(planned == graph.size());
  }
}

}  // namespace
}  // namespace pd
