#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

// Operations that work on each element alone; T float or double, dense.

/// y = f(x); backward reads y: relu y > 0, tanh 1 - y², sigmoid y·(1 - y). A NaN stays one.
template <typename T>
std::unique_ptr<Op> MakeActivation(Activation kind, const OpRequest& request);

template <typename T>
std::unique_ptr<Op> MakeGelu(const GeluDesc& desc, const OpRequest& request);

/// Backward computes the mask again from (key, minibatch): nothing is saved.
template <typename T>
std::unique_ptr<Op> MakeDropout(const DropoutDesc& desc, const OpRequest& request);

/// y = x[0] + x[1] + …, all of one shape.
template <typename T>
std::unique_ptr<Op> MakeAdd(const OpRequest& request);

}  // namespace pd::ref
