#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// attention: [T, 3·D], of each position its query, key and value, → [T, D]: for each head
/// softmax(q·kᵀ / √(D/heads))·v. Keys heads, a divisor of D; causal (false): a position sees itself
/// and earlier ones only. No parameters: projections are linear layers around it.
std::unique_ptr<Layer> MakeAttention(const LayerReader& reader);

}  // namespace pd
