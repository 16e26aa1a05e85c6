#include "kernels.h"

#include "cuda_emulator/launch.h"

namespace cuda_emulator_test {
namespace {

using cuda_emulator::Launch;
using cuda_emulator::LaunchWithBarriers;

constexpr unsigned kMaxThreads = 256;

__global__ void AxpyKernel(float a, const float* __restrict__ x, float* __restrict__ y, int count) {
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count;
       i += static_cast<int>(gridDim.x * blockDim.x)) {
    y[i] += a * __ldg(x + i);
  }
}

__global__ void FillKernel(float value, float* y, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = value;
}

template <bool kBarriers>
__global__ void __launch_bounds__(kMaxThreads) BlockSumKernel(const float* x, float* sums) {
  __shared__ float partial[kMaxThreads];
  const unsigned i = threadIdx.x;
  partial[i] = x[blockIdx.x * blockDim.x + i];
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (kBarriers) __syncthreads();
    if (i < half) partial[i] += partial[i + half];
  }
  if (i == 0) sums[blockIdx.x] = partial[0];
}

__global__ void WarpSumKernel(const float* x, float* sums) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = x[i];
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
  const float everywhere = __shfl_sync(0xffffffffu, value, 0);
  if (__any_sync(0xffffffffu, everywhere != everywhere)) return;
  if (threadIdx.x % 32 == 0) sums[i / 32] = value;
}

__global__ void CountKernel(int* total) { atomicAdd(total, 1); }

__global__ void DivergentKernel() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __shfl_xor_sync(0xffffffffu, 1, 1);
  }
}

__global__ void BarrierKernel(float* y) {
  __syncthreads();
  y[0] = 1;
}

}  // namespace

void Axpy(float a, const float* x, float* y, int count, cudaStream_t stream) {
  Launch("Axpy", AxpyKernel, 2, 64, stream, a, x, y, count);
}

void Fill(float value, float* y, int count, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((count + 63) / 64);
  Launch("Fill", FillKernel, blocks, 64, stream, value, y, count);
}

void BlockSum(const float* x, float* sums, unsigned blocks, unsigned threads, bool barriers,
              cudaStream_t stream) {
  LaunchWithBarriers("BlockSum", barriers ? BlockSumKernel<true> : BlockSumKernel<false>, blocks,
                     threads, stream, x, sums);
}

void WarpSum(const float* x, float* sums, unsigned warps, cudaStream_t stream) {
  LaunchWithBarriers("WarpSum", WarpSumKernel, 1, warps * 32, stream, x, sums);
}

void Count(int* total, unsigned blocks, unsigned threads, cudaStream_t stream) {
  Launch("Count", CountKernel, blocks, threads, stream, total);
}

void Divergent(cudaStream_t stream) {
  LaunchWithBarriers("Divergent", DivergentKernel, 1, 64, stream);
}

void AxpyGrid(const float* x, float* y, dim3 grid, dim3 block, cudaStream_t stream) {
  Launch("Axpy", AxpyKernel, grid, block, stream, 1.0f, x, y, 1);
}

void BarrierInPlainLaunch(float* y, cudaStream_t stream) {
  Launch("Barrier", BarrierKernel, 1, 1, stream, y);
}

}  // namespace cuda_emulator_test
