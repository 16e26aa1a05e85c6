#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

/// y = x·weightᵀ + bias on the last dimension, T float or double.
/// Shapes: x [N,…,I], weight [O,I], bias [O] → y [N,…,O]; dense.
template <typename T>
std::unique_ptr<Op> MakeLinear(const LinearDesc& desc, const OpRequest& request);

}  // namespace pd::ref
