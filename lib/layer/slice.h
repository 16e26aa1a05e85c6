#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// slice: elements begin to end - 1 of dimension `axis` of the sample. Keys axis (0), begin (0),
/// end.
std::unique_ptr<Layer> MakeSlice(const LayerReader& reader);

}  // namespace pd
