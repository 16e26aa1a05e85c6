#pragma once

#include <cstddef>

#include "backend/backend.h"

namespace pd {

// Element-wise work on host memory, shared by the backends that compute there. Multiplications and
// additions are rounded one by one (never fused), so a result depends neither on the vector width
// that the processor has nor on how a range is cut into calls. None of these allocate.

/// acc[i] += x[i]. acc and x do not overlap.
void AccumulateHost(float* acc, const float* x, size_t count);
void AccumulateHost(double* acc, const double* x, size_t count);

/// One term of the weighted sum over replicas: acc[i] = (first ? 0 : acc[i]) + x[i]·scale, the
/// product rounded before the sum; `first` stores the product, and acc may be x then.
void AddScaledHost(float* acc, const float* x, float scale, bool first, size_t count);
void AddScaledHost(double* acc, const double* x, float scale, bool first, size_t count);
void AddScaledHost(DType dtype, void* acc, const void* x, float scale, bool first, size_t count);

/// Backend::Sgd on float or double elements; lr, momentum and weight decay are rounded to that
/// type. w_out is w or does not overlap it. A weight decay of 0 leaves w out of g' (so 0·∞ cannot
/// enter).
void SgdHostF32(const SgdArgs& args);
void SgdHostF64(const SgdArgs& args);

}  // namespace pd
