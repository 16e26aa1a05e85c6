#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// transpose: dimension d of the output is dimension axes[d] of the input. Key axes: a permutation
/// of the sample's dimensions, from 0.
std::unique_ptr<Layer> MakeTranspose(const LayerReader& reader);

}  // namespace pd
