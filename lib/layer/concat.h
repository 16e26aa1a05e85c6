#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// concat: two or more inputs side by side along dimension `axis` of the sample; the others are
/// equal. Key axis (0: the channels or features).
std::unique_ptr<Layer> MakeConcat(const LayerReader& reader);

}  // namespace pd
