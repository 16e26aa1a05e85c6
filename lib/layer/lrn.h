#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// lrn: [C, H, W], local response normalisation across channels. Keys size (5, odd), alpha (1e-4,
/// divided by size), beta (0.75), k (1).
std::unique_ptr<Layer> MakeLrn(const LayerReader& reader);

}  // namespace pd
