#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// layer_norm: […, D] over the last dimension, biased variance. Key eps (1e-5). Parameters weight,
/// bias [D].
std::unique_ptr<Layer> MakeLayerNorm(const LayerReader& reader);

}  // namespace pd
