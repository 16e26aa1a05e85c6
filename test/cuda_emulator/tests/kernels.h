#pragma once

/// Launchers of the kernels in kernels.cu.

#include <cuda_runtime_api.h>

namespace cuda_emulator_test {

/// y[i] = a x[i] + y[i]
void Axpy(float a, const float* x, float* y, int count, cudaStream_t stream);

/// y[i] = value for i in [0, count), whatever y holds.
void Fill(float value, float* y, int count, cudaStream_t stream);

/// sums[b] = sum of the block's `threads` elements of x, by a tree in shared memory. Without
/// `barriers` the tree's steps race.
void BlockSum(const float* x, float* sums, unsigned blocks, unsigned threads, bool barriers,
              cudaStream_t stream);

/// sums[w] = sum of the 32 elements of warp w, by shuffles.
void WarpSum(const float* x, float* sums, unsigned warps, cudaStream_t stream);

/// *total += the number of threads, by atomicAdd.
void Count(int* total, unsigned blocks, unsigned threads, cudaStream_t stream);

/// Half of the threads call __syncthreads, the others a warp function that needs all.
void Divergent(cudaStream_t stream);

/// Launches Axpy's kernel with any grid and block.
void AxpyGrid(const float* x, float* y, dim3 grid, dim3 block, cudaStream_t stream);

/// __syncthreads in a kernel that was launched without barriers.
void BarrierInPlainLaunch(float* y, cudaStream_t stream);

}  // namespace cuda_emulator_test
