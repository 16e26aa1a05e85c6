#pragma once

#include <fmt/core.h>

#include <random>
#include <vector>

#include "plan/plan.h"

namespace pd {

/// Small whole numbers, so that ties are frequent.
inline int64_t Uniform(std::mt19937& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

/// A chain, or with `branches` a graph in which a layer reads one to three earlier ones; with
/// `loose` not always the one before it, and sometimes none, so that many layers stand side by
/// side.
inline std::vector<LayerCost> RandomLayers(std::mt19937& random, int count, bool branches,
                                           bool loose = false) {
  std::vector<LayerCost> layers;
  for (int l = 0; l < count; ++l) {
    LayerCost layer;
    layer.name = fmt::format("layer{}", l);
    layer.forward_ms = static_cast<double>(Uniform(random, 0, 4));
    layer.backward_ms = static_cast<double>(Uniform(random, 1, 6));
    layer.activation_bytes = Uniform(random, 0, 4) * 1000;
    layer.parameter_bytes = Uniform(random, 0, 2) * Uniform(random, 0, 8) * 1000;
    if (Uniform(random, 0, 1) == 0) layer.update_ms = static_cast<double>(Uniform(random, 0, 2));
    if (Uniform(random, 0, 1) == 0) layer.stash_bytes = Uniform(random, 0, 8) * 1000;
    if (Uniform(random, 0, 1) == 0) layer.workspace_bytes = Uniform(random, 0, 8) * 1000;
    if (l % 3 == 1) layer.copy_bytes = layer.activation_bytes + 500;
    int64_t reads = l == 0 ? 0 : branches ? Uniform(random, 1, 3) : 1;
    if (loose) reads = l == 0 ? 0 : Uniform(random, 0, 2);
    for (int64_t r = 0; r < reads; ++r) {
      const bool before = !branches || (r == 0 && !loose);
      const int64_t from = before ? l - 1 : Uniform(random, 0, l - 1);
      layer.inputs.push_back(layers[static_cast<size_t>(from)].name);
    }
    if (reads == 0) layer.inputs.push_back("image");
    layers.push_back(layer);
  }
  return layers;
}

}  // namespace pd
