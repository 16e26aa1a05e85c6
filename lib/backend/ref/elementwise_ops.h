#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

// Operations that work on each element alone or only move elements; T float or double, dense.

/// y = f(x); backward reads y: relu y > 0, tanh 1 - y², sigmoid y·(1 - y). A NaN stays one.
template <typename T>
std::unique_ptr<Op> MakeActivation(Activation kind, const OpRequest& request);

/// Backward computes the mask again from (key, minibatch): nothing is saved.
template <typename T>
std::unique_ptr<Op> MakeDropout(const DropoutDesc& desc, const OpRequest& request);

/// A copy with the shape [N, d1·d2·…].
template <typename T>
std::unique_ptr<Op> MakeFlatten(const OpRequest& request);

/// y = x[0] + x[1] + …, all of one shape.
template <typename T>
std::unique_ptr<Op> MakeAdd(const OpRequest& request);

/// Along dimension 1; the others are equal.
template <typename T>
std::unique_ptr<Op> MakeConcat(const OpRequest& request);

}  // namespace pd::ref
