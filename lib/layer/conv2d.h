#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// conv2d: x [C, H, W] → y [K, P, Q]. Keys out_channels, kernel, stride (1), padding (0), dilation
/// (1), groups (1), bias (true); numbers or [h, w]. Parameters weight [K, C/groups, R, S], bias
/// [K].
std::unique_ptr<Layer> MakeConv2d(const LayerReader& reader);

}  // namespace pd
