#pragma once

#include "backend/cuda/launch.h"

namespace pd::cuda {

/// The sum of `value` over the threads of a block, in double and by one tree, so that it is the
/// same in every run. Threads: a power of two; all call it. `scratch` (shared memory): one a
/// thread; free again on return.
__device__ inline double BlockSum(double value, double* scratch) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  scratch[thread] = value;
  __syncthreads();
  for (unsigned half = blockDim.x * blockDim.y / 2; half > 0; half /= 2) {
    if (thread < half) scratch[thread] += scratch[thread + half];
    __syncthreads();
  }
  const double sum = scratch[0];
  __syncthreads();
  return sum;
}

}  // namespace pd::cuda
