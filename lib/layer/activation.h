#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// relu, tanh, sigmoid: any shape, element by element. No keys.
std::unique_ptr<Layer> MakeActivation(const LayerReader& reader);

}  // namespace pd
