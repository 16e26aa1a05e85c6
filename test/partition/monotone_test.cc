// What better links and more memory do to the predicted time of the plan that is chosen.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "partition/partition.h"
#include "partition/random_graph.h"
#include "partition/search.h"
#include "support/catch.h"

namespace pd {
namespace {

// A chain or graph of 2 to 14 layers on one level (even seeds) or two, a quarter of the seeds each
// with a limit that is up to 8 times the smallest memory.
struct RandomCase {
  Profile profile;
  PartitionOptions options;

  explicit RandomCase(uint32_t seed) {
    std::mt19937 random(seed * 2'654'435'761u + 17);
    profile.batch_size = 32;
    const int layers = static_cast<int>(Uniform(random, 2, 14));
    profile.layers = RandomLayers(random, layers, Uniform(random, 0, 2) != 0);
    options.compare = false;
    const double rate = 1e5 * std::exp2(static_cast<double>(Uniform(random, 0, 60)) / 10);
    const double latency =
        0.05 * static_cast<double>(Uniform(random, 0, 2) * Uniform(random, 0, 10));
    options.cluster.levels = {{static_cast<int>(Uniform(random, 2, 8)), rate, latency}};
    if (seed % 2 == 1) {
      const int each = static_cast<int>(Uniform(random, 2, 4));
      const int machines = static_cast<int>(Uniform(random, 2, 3));
      const double outer = rate / static_cast<double>(Uniform(random, 1, 6));
      options.cluster.levels = {{each, rate, latency / 4}, {machines, outer, latency}};
    }
    if (seed % 4 < 2) return;
    SearchOptions search;
    search.rule = CostRule::Of(CostModel::kRuntime, options.cluster);
    search.max_workers = options.cluster.workers();
    search.allow_recompute = true;
    const auto least = static_cast<double>(SmallestMemory(MakeCostGraph(profile.layers), search));
    const double more = std::exp2(static_cast<double>(Uniform(random, 0, 30)) / 10);
    options.cluster.memory_bytes = static_cast<int64_t>(least * more);
  }

  // Calls use(what, options) for links that are faster, all or those of one level, and for more
  // memory.
  template <typename Use>
  void ForEachBetter(const Use& use) const {
    const size_t levels = options.cluster.levels.size();
    PartitionOptions better = options;
    for (const double factor : {1.1, 1.25, 1.5, 2.0, 4.0}) {
      // One level alone, or, last, all.
      for (size_t only = levels == 1 ? 1 : 0; only <= levels; ++only) {
        better = options;
        for (size_t l = 0; l < levels; ++l) {
          if (only == l || only == levels) better.cluster.levels[l].bandwidth_bytes_per_s *= factor;
        }
        use(fmt::format("{} times the bandwidth of {}", factor,
                        only == levels ? "all levels" : fmt::format("level {}", only)),
            better);
      }
      better = options;
      if (!options.cluster.memory_bytes) continue;
      const auto bytes = static_cast<double>(*options.cluster.memory_bytes);
      better.cluster.memory_bytes = static_cast<int64_t>(bytes * factor);
      use(fmt::format("{} times the memory", factor), better);
    }
    better = options;
    if (!options.cluster.memory_bytes) return;
    better.cluster.memory_bytes.reset();
    use(std::string("no memory limit"), better);
  }
};

// A stage that fits without recomputing, with its minibatches in flight, never recomputes, whatever
// limit its plan was found for.
void CheckRecompute(const RandomCase& given, const PartitionOptions& options,
                    const PartitionResult& result) {
  const CostGraph graph = MakeCostGraph(given.profile.layers);
  for (size_t s = 0; s < result.stages.size(); ++s) {
    const StageReport& stage = result.stages[s];
    if (!stage.recompute) continue;
    const MemoryEstimate without(SumsOf(graph, stage.layers, stage.layers[0] == 0),
                                 static_cast<int>(stage.workers.size()));
    REQUIRE(options.cluster.memory_bytes.has_value());
    CHECK(without.Bytes(stage.in_flight) > *options.cluster.memory_bytes);
  }
}

TEST_CASE("faster links and more memory raise the predicted time by 1 % at most, on these cases") {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const RandomCase given(seed);
    const PartitionResult before = Partition(given.profile, given.options);
    CheckRecompute(given, given.options, before);
    given.ForEachBetter([&](const std::string& what, const PartitionOptions& better) {
      CAPTURE(seed, what);
      const PartitionResult after = Partition(given.profile, better);
      CHECK(after.predicted.minibatch_ms <= 1.01 * before.predicted.minibatch_ms);
      CheckRecompute(given, better, after);
    });
  }
}

// Prints the figures of docs/planner.md; run by hand, for minutes.
TEST_CASE("of many cases, how often faster links and more memory raise the predicted time",
          "[.][monotone]") {
  struct Tally {
    int cases = 0, beyond_thousandth = 0, beyond_hundredth = 0;
    double worst = 1;
  };
  Tally links, memory;
  for (uint32_t seed = 600; seed < 900; ++seed) {
    const RandomCase given(seed);
    const double before = Partition(given.profile, given.options).predicted.minibatch_ms;
    given.ForEachBetter([&](const std::string& what, const PartitionOptions& better) {
      const double ratio = Partition(given.profile, better).predicted.minibatch_ms / before;
      Tally& tally = what.find("bandwidth") != std::string::npos ? links : memory;
      ++tally.cases;
      tally.worst = std::max(tally.worst, ratio);
      if (ratio > 1.001 + 1e-9) ++tally.beyond_thousandth;
      if (ratio > 1.01) ++tally.beyond_hundredth;
      if (ratio > 1.01) fmt::print("seed {}, {}: {:.4f} times\n", seed, what, ratio);
    });
  }
  for (const auto& [name, tally] : {std::pair("bandwidth", links), std::pair("memory", memory)}) {
    fmt::print("{}: {} cases, {} slower by more than a thousandth, {} by 1 %, at most {:.4f}\n",
               name, tally.cases, tally.beyond_thousandth, tally.beyond_hundredth, tally.worst);
  }
  CHECK(100 * links.beyond_hundredth <= links.cases);
  CHECK(100 * memory.beyond_hundredth <= memory.cases);
}

}  // namespace
}  // namespace pd
