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

/// The largest of `value` over the threads of a block, as BlockSum; numbers win over NaN.
__device__ inline float BlockLargest(float value, float* scratch) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  scratch[thread] = value;
  __syncthreads();
  for (unsigned half = blockDim.x * blockDim.y / 2; half > 0; half /= 2) {
    if (thread < half) scratch[thread] = fmaxf(scratch[thread], scratch[thread + half]);
    __syncthreads();
  }
  const float largest = scratch[0];
  __syncthreads();
  return largest;
}

/// The sum of `value` over the threads of each column x of a block, as BlockSum.
__device__ inline double ColumnSum(double value, double* scratch) {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  scratch[thread] = value;
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) scratch[thread] += scratch[thread + half * blockDim.x];
    __syncthreads();
  }
  const double sum = scratch[threadIdx.x];
  __syncthreads();
  return sum;
}

}  // namespace pd::cuda
