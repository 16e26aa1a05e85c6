#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// linear: x […, in] → y […, out], on the last dimension. Keys out_features, bias (true).
/// Parameters weight [out, in], bias [out].
std::unique_ptr<Layer> MakeLinear(const LayerReader& reader);

}  // namespace pd
