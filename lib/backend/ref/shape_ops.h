#pragma once

#include <memory>

#include "backend/op.h"

namespace pd::ref {

// Operations that only move elements; T float or double, dense. Each gradient is moved back.

/// A copy with the shape [N, shape]. An i32 input stays one.
template <typename T>
std::unique_ptr<Op> MakeReshape(const Shape& shape, const OpRequest& request);

/// Along dimension `axis`; the others are equal.
template <typename T>
std::unique_ptr<Op> MakeConcat(int64_t axis, const OpRequest& request);

/// The gradient of what is left out is 0.
template <typename T>
std::unique_ptr<Op> MakeSlice(const SliceDesc& desc, const OpRequest& request);

template <typename T>
std::unique_ptr<Op> MakePad(const PadDesc& desc, const OpRequest& request);

template <typename T>
std::unique_ptr<Op> MakeTranspose(const TransposeDesc& desc, const OpRequest& request);

}  // namespace pd::ref
