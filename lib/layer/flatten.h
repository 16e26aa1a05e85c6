#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// flatten: [d1, d2, …] → [d1·d2·…] in row-major order; keeps the type. No keys.
std::unique_ptr<Layer> MakeFlatten(const LayerReader& reader);

}  // namespace pd
