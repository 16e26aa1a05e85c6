#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// pad: zeros around the sample. Keys before, after: how many, an integer for each dimension of the
/// sample.
std::unique_ptr<Layer> MakePad(const LayerReader& reader);

}  // namespace pd
