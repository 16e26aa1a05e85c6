#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

/// Convolution (cross-correlation), T float or double.
/// Shapes: x [N,C,H,W], weight [K,C/groups,R,S], bias [K] → y [N,K,P,Q]; dense.
template <typename T>
std::unique_ptr<Op> MakeConv2d(const Conv2dDesc& desc, const OpRequest& request);

}  // namespace pd::ref
