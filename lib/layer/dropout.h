#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// dropout: any shape. Key p (0.5), the share that is dropped, at least 0 and below 1.
std::unique_ptr<Layer> MakeDropout(const LayerReader& reader);

}  // namespace pd
