#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// concat: two or more inputs [C_i, …] → [ΣC_i, …], along the channels or features. No keys.
std::unique_ptr<Layer> MakeConcat(const LayerReader& reader);

}  // namespace pd
