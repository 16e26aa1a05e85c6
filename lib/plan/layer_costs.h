#pragma once

#include <vector>

#include "base/json.h"
#include "model/model.h"
#include "plan/plan.h"

namespace pd {

/// Bounds of what documents may say; past them a number is a mistake.
inline constexpr double kMaxMs = 1e9;
inline constexpr int64_t kMaxBytes = 1'000'000'000'000'000'000;
inline constexpr int64_t kMaxBatchSize = 1'000'000'000;
inline constexpr int kMaxWorkers = 65536;
inline constexpr int kMaxInFlight = 65536;
inline constexpr double kMaxPredicted = 1e18;

/// Reads the array "layers" of a profile or of a plan's costs. Names are unique; inputs name layers
/// before, or graph inputs, which without a model are all names that are no layer's. With `model`,
/// layers and inputs are the model's, in its order.
std::vector<LayerCost> ReadLayerCosts(const JsonView& json, const Model* model);

/// The inverse: an array with the keys in the order of design.
nlohmann::ordered_json LayerCostsJson(const std::vector<LayerCost>& layers);

/// The text of a view's element for a writer: the document embedded as it was read.
nlohmann::ordered_json Embedded(const JsonView& view);

/// The cluster/1 document as a tree, for the writers of clusters and plans.
nlohmann::ordered_json ClusterJson(const Cluster& cluster);

}  // namespace pd
