#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// max_pool2d, avg_pool2d: x [C, H, W] → y [C, P, Q]. Keys kernel, stride (kernel), padding (0, at
/// most half the kernel), ceil (false); average also count_include_pad (true).
std::unique_ptr<Layer> MakePool2d(const LayerReader& reader);

/// global_avg_pool2d: x [C, H, W] → y [C, 1, 1]. No keys.
std::unique_ptr<Layer> MakeGlobalAvgPool2d(const LayerReader& reader);

}  // namespace pd
