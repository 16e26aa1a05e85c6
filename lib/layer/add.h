#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// add: the sum of two or more inputs of one shape. No keys.
std::unique_ptr<Layer> MakeAdd(const LayerReader& reader);

}  // namespace pd
