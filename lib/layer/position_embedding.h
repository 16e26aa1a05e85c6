#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// position_embedding: x [T, D] → x + weight, a row for each position. No keys. Parameter weight
/// [T, D].
std::unique_ptr<Layer> MakePositionEmbedding(const LayerReader& reader);

}  // namespace pd
