#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// softmax_cross_entropy: inputs logits [T…, C] and targets [T…], i32, from 0 to C-1 or
/// kIgnoredTarget → [kLossColumns]. Key weight (1), its weight in the total.
std::unique_ptr<Layer> MakeSoftmaxCrossEntropy(const LayerReader& reader);

}  // namespace pd
