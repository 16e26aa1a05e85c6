#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// reshape: the same elements in row-major order, in another shape; keeps the type. Key shape.
std::unique_ptr<Layer> MakeReshape(const LayerReader& reader);

}  // namespace pd
