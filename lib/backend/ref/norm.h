#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

/// Batch norm, T float or double; shapes and rules at BatchNormDesc. Saved: mean and inverse
/// deviation of each channel, double. The gradient is that of training.
template <typename T>
std::unique_ptr<Op> MakeBatchNorm(const BatchNormDesc& desc, const OpRequest& request);

/// Local response normalisation over channels, T float or double; x [N,C,…], formula at LrnDesc.
/// The window of channel c is [c - size/2, c + (size-1)/2], as in PyTorch, clipped.
template <typename T>
std::unique_ptr<Op> MakeLrn(const LrnDesc& desc, const OpRequest& request);

}  // namespace pd::ref
