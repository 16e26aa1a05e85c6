#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// gelu: any shape, element by element. Key approximate ("none", or "tanh").
std::unique_ptr<Layer> MakeGelu(const LayerReader& reader);

}  // namespace pd
