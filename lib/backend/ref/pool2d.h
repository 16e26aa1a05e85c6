#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

/// Maximum and average pooling, T float or double. A NaN in a window is its maximum, as in PyTorch.
/// Shapes: x [N,C,H,W] → y [N,C,out]; dense. Saved by maximum pooling: the place in the plane that
/// each output was taken from, int32.
template <typename T>
std::unique_ptr<Op> MakePool2d(const Pool2dDesc& desc, const OpRequest& request);

}  // namespace pd::ref
