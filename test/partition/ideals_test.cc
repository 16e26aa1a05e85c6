#include "partition/ideals.h"

#include <set>

#include "partition/random_graph.h"
#include "support/catch.h"

namespace pd {
namespace {

// A first layer, then branches of the given lengths, then a last layer that joins them.
CostGraph Branches(const std::vector<int>& lengths) {
  std::vector<LayerCost> layers(1);
  layers[0].name = "first";
  LayerCost last;
  last.name = "last";
  for (size_t b = 0; b < lengths.size(); ++b) {
    std::string before = "first";
    for (int l = 0; l < lengths[b]; ++l) {
      LayerCost layer;
      layer.name = fmt::format("branch{}.{}", b, l);
      layer.inputs = {before};
      layer.activation_bytes = static_cast<int64_t>(10 * b + l + 1);
      before = layer.name;
      layers.push_back(layer);
    }
    last.inputs.push_back(before);
  }
  layers.push_back(last);
  for (LayerCost& layer : layers) layer.forward_ms = 1;
  return MakeCostGraph(layers);
}

TEST_CASE("parallel branches have as many ideals as the product of their positions") {
  const CostGraph graph = Branches({2, 3, 1});
  const Ideals ideals(graph, 100);
  CHECK(ideals.all());
  CHECK(ideals.size() == 3 * 4 * 2 + 2);  // Nothing, and everything with `last`.
}

TEST_CASE("ideals hold what their layers read, and none comes twice") {
  std::mt19937 random(41);
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    const CostGraph graph = MakeCostGraph(RandomLayers(random, 9, true, round % 2 == 0));
    for (const int most : {1000, 25, 11, 4}) {
      const Ideals ideals(graph, most);
      CHECK(ideals.size() <= most);
      std::set<std::vector<int>> seen;
      for (int i = 0; i < ideals.size(); ++i) {
        const std::vector<int> layers = i == 0 ? std::vector<int>() : ideals.LayersBetween(0, i);
        CHECK(seen.insert(layers).second);
        for (const int l : layers) {
          for (const int producer : graph.layers[l].producers) CHECK(ideals.Has(i, producer));
        }
      }
      CHECK(ideals.LayersBetween(0, ideals.size() - 1).size() == 9);
      // Those of the layers' order are there where there is room for them.
      if (most < 10) continue;
      int prefixes = 0;
      for (int i = 0; i < ideals.size(); ++i) prefixes += ideals.IsPrefix(i) ? 1 : 0;
      CHECK(prefixes == 10);
    }
    // All of them: as many as subsets that hold what they read.
    int expected = 0;
    for (unsigned mask = 0; mask < 1U << 9; ++mask) {
      bool closed = true;
      for (int l = 0; l < 9; ++l) {
        for (const int producer : graph.layers[l].producers) {
          closed = closed && ((mask >> l & 1) == 0 || (mask >> producer & 1) != 0);
        }
      }
      expected += closed ? 1 : 0;
    }
    const Ideals all(graph, 1000);
    CHECK(all.all());
    CHECK(all.size() == expected);
    CHECK_FALSE(Ideals(graph, expected - 1).all());
  }
}

TEST_CASE("the sums between two ideals are those of their layers") {
  std::mt19937 random(42);
  for (int round = 0; round < 50; ++round) {
    CAPTURE(round);
    const CostGraph graph = MakeCostGraph(RandomLayers(random, 8, true, true), {{"image", 700}});
    const Ideals ideals(graph, 300);
    for (int i = 0; i < ideals.size(); ++i) {
      for (int j = i + 1; j < ideals.size(); ++j) {
        if (!ideals.Within(i, j)) continue;
        const StageSums sums = ideals.Between(i, j, true);
        CHECK(sums == SumsOf(graph, ideals.LayersBetween(i, j), i == 0));
      }
    }
  }
}

}  // namespace
}  // namespace pd
