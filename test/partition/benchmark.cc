// Times whole plans in CPU seconds: partition_benchmark [words of case names...]
#include <fmt/core.h>

#include <cstring>
#include <ctime>
#include <functional>

#include "partition/partition.h"
#include "partition/random_graph.h"

namespace {

// Blocks of three layers, each with a connection around it.
std::vector<pd::LayerCost> Residual(int blocks) {
  std::vector<pd::LayerCost> layers;
  for (int l = 0; l < 3 * blocks; ++l) {
    pd::LayerCost layer;
    layer.name = fmt::format("layer{}", l);
    layer.forward_ms = 1 + l % 5;
    layer.backward_ms = 2 * layer.forward_ms;
    layer.activation_bytes = 1000 * (1 + l % 3);
    layer.parameter_bytes = 3000 * (1 + l % 7);
    if (l > 0) layer.inputs.push_back(layers[static_cast<size_t>(l) - 1].name);
    if (l % 3 == 2 && l > 2) layer.inputs.push_back(layers[static_cast<size_t>(l) - 3].name);
    layers.push_back(layer);
  }
  return layers;
}

// Blocks as of inception networks: branches of several layers between two joints.
std::vector<pd::LayerCost> Inception(int blocks, int branches, int length) {
  std::vector<pd::LayerCost> layers;
  std::mt19937 random(5);
  const auto add = [&](std::vector<std::string> inputs) {
    pd::LayerCost layer;
    layer.name = fmt::format("layer{}", layers.size());
    layer.forward_ms = static_cast<double>(pd::Uniform(random, 1, 9));
    layer.backward_ms = 2 * layer.forward_ms;
    layer.activation_bytes = pd::Uniform(random, 1, 9) * 1000;
    layer.parameter_bytes = pd::Uniform(random, 0, 9) * 3000;
    layer.inputs = std::move(inputs);
    layers.push_back(layer);
    return layer.name;
  };
  std::string joint = add({"image"});
  for (int b = 0; b < blocks; ++b) {
    std::vector<std::string> ends;
    for (int branch = 0; branch < branches; ++branch) {
      std::string end = joint;
      for (int l = 0; l < length; ++l) end = add({end});
      ends.push_back(end);
    }
    joint = add(ends);
  }
  return layers;
}

std::vector<pd::LayerCost> Chain(int layers) {
  std::mt19937 random(1);
  return pd::RandomLayers(random, layers, false);
}

std::vector<pd::LayerCost> Dag(int layers) {
  std::mt19937 random(1);
  return pd::RandomLayers(random, layers, true);
}

struct Case {
  const char* name;
  std::function<std::vector<pd::LayerCost>()> layers;
  std::vector<pd::Cluster::Level> levels;
  bool speeds = false;
  int64_t memory_bytes = 0;
  pd::CostModel model = pd::CostModel::kRuntime;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Case> cases = {
      // The largest that are compared with all rivals.
      {"chain 98 x 40", [] { return Chain(98); }, {{40, 1e6, 0}}},
      {"chain 98 x 40 memory", [] { return Chain(98); }, {{40, 1e6, 0}}, false, 1'000'000},
      {"chain 98 x 8x5", [] { return Chain(98); }, {{8, 1e6, 0}, {5, 4e5, 0}}},
      {"chain 98 x 8x5 memory",
       [] { return Chain(98); },
       {{8, 1e6, 0}, {5, 4e5, 0}},
       false,
       1'000'000},
      {"chain 200 x 64", [] { return Chain(200); }, {{64, 1e6, 0}}},
      {"chain 1000 x 64", [] { return Chain(1000); }, {{64, 1e6, 0}}},
      {"dag 1000 x 64", [] { return Dag(1000); }, {{64, 1e6, 0}}},
      {"dag 1000 x 64 arxiv",
       [] { return Dag(1000); },
       {{64, 1e6, 0}},
       false,
       0,
       pd::CostModel::kArxiv},
      {"chain 1000 x 64 memory", [] { return Chain(1000); }, {{64, 1e6, 0}}, false, 40'000'000},
      {"chain 1000 x 64 speeds", [] { return Chain(1000); }, {{64, 1e6, 0}}, true},
      {"chain 1000 x 8x8", [] { return Chain(1000); }, {{8, 1e6, 0}, {8, 4e5, 0}}},
      {"dag 1000 x 8x8", [] { return Dag(1000); }, {{8, 1e6, 0}, {8, 4e5, 0}}},
      {"chain 1000 x 8x8 memory",
       [] { return Chain(1000); },
       {{8, 1e6, 0}, {8, 4e5, 0}},
       false,
       40'000'000},
      {"residual 40 x 8x8", [] { return Residual(40); }, {{8, 1e6, 0}, {8, 4e5, 0}}},
      {"residual 40 x 8x8 speeds", [] { return Residual(40); }, {{8, 1e6, 0}, {8, 4e5, 0}}, true},
      {"inception 11 x 16", [] { return Inception(11, 4, 3); }, {{16, 1e6, 0}}},
      {"inception 11 x 4x4", [] { return Inception(11, 4, 3); }, {{4, 1e6, 0}, {4, 4e5, 0}}},
      {"dense 1500 x 16", [] { return Dag(1500); }, {{16, 1e6, 0}}},
      {"dense 1500 x 16 memory", [] { return Dag(1500); }, {{16, 1e6, 0}}, false, 60'000'000},
      {"chain 10000 x 1024", [] { return Chain(10'000); }, {{1024, 1e6, 0}}},
      {"chain 10000 x 32x32", [] { return Chain(10'000); }, {{32, 1e6, 0}, {32, 4e5, 0}}},
  };
  for (const Case& each : cases) {
    bool wanted = argc < 2;
    for (int a = 1; a < argc; ++a) wanted = wanted || std::strstr(each.name, argv[a]) != nullptr;
    if (!wanted) continue;
    pd::Profile profile;
    profile.batch_size = 64;
    profile.layers = each.layers();
    pd::PartitionOptions options;
    options.cluster.levels = each.levels;
    options.cost_model = each.model;
    if (each.memory_bytes > 0) options.cluster.memory_bytes = each.memory_bytes;
    for (int w = 0; each.speeds && w < options.cluster.workers(); ++w) {
      options.cluster.speeds.push_back(w % 3 == 0 ? 0.5 : 1);
    }
    const std::clock_t start = std::clock();
    const pd::PartitionResult result = pd::Partition(profile, options);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    fmt::print(
        "{:28} {:5} layers: {:6.2f} s, period {:.4f} ms, cost {:.4f} ms of at least {:.4f}, {} "
        "stages\n",
        each.name, profile.layers.size(), seconds, result.predicted.minibatch_ms,
        result.bottleneck_ms, result.lower_bound_ms, result.stages.size());
    std::fflush(stdout);
  }
  return 0;
}
