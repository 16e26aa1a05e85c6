#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// batch_norm: [C] or [C, H, W], each channel over minibatch and image. Keys eps (1e-5), momentum
/// (0.1: the share of the new). Parameters weight, bias; state running_mean, running_var; all [C].
std::unique_ptr<Layer> MakeBatchNorm(const LayerReader& reader);

}  // namespace pd
