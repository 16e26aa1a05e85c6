#include "backend/cuda/block_sum.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

// Rows and channels: copies (concat and its split), biases and their gradients.

namespace pd::cuda {
namespace {

// Rounding away from float only once: sums are doubles, which costs nothing beside the memory.
constexpr unsigned kSumThreads = 1024;
constexpr unsigned kColumns = 32;  ///< Of one block where the channels are neighbours in memory.

// to[r, i] = from[r, i]
__global__ void CopyRowsKernel(float* to, size_t to_stride, const float* from, size_t from_stride,
                               size_t width, size_t rows) {
  PD_LOOP(row, y, rows) {
    PD_LOOP(i, x, width) to[row * to_stride + i] = from[row * from_stride + i];
  }
}

// y[n, c, i] += bias[c]
__global__ void AddBiasKernel(float* y, const float* bias, size_t outer, size_t channels,
                              size_t inner) {
  PD_LOOP(n, z, outer) {
    PD_LOOP(c, y, channels) {
      const float shift = bias[c];
      float* row = y + (n * channels + c) * inner;
      PD_LOOP(i, x, inner) row[i] += shift;
    }
  }
}

// dbias[c] = Σ_n Σ_i dy[n, c, i]: a block a channel; its threads share n (y) and i (x).
__global__ void __launch_bounds__(kSumThreads)
    BiasGradientKernel(const float* dy, float* dbias, size_t outer, size_t channels, size_t inner) {
  __shared__ double scratch[kSumThreads];
  for (size_t c = blockIdx.x; c < channels; c += gridDim.x) {
    double sum = 0;
    for (size_t n = threadIdx.y; n < outer; n += blockDim.y) {
      const float* row = dy + (n * channels + c) * inner;
      for (size_t i = threadIdx.x; i < inner; i += blockDim.x) sum += static_cast<double>(row[i]);
    }
    sum = BlockSum(sum, scratch);
    if (threadIdx.x == 0 && threadIdx.y == 0) dbias[c] = static_cast<float>(sum);
  }
}

// dbias[c] = Σ_n dy[n, c]: a block kColumns channels (x); its threads share n (y).
__global__ void __launch_bounds__(kSumThreads)
    ColumnSumKernel(const float* dy, float* dbias, size_t outer, size_t channels) {
  __shared__ double scratch[kSumThreads];
  for (size_t first = size_t{blockIdx.x} * kColumns; first < channels;
       first += size_t{gridDim.x} * kColumns) {
    const size_t c = first + threadIdx.x;
    double sum = 0;
    for (size_t n = threadIdx.y; c < channels && n < outer; n += blockDim.y) {
      sum += static_cast<double>(dy[n * channels + c]);
    }
    sum = ColumnSum(sum, scratch);
    if (threadIdx.y == 0 && c < channels) dbias[c] = static_cast<float>(sum);
  }
}

}  // namespace

cudaError_t LaunchCopyRows(float* to, int64_t to_stride, const float* from, int64_t from_stride,
                           int64_t width, int64_t rows, cudaStream_t stream) {
  if (width == 0 || rows == 0) return cudaSuccess;
  const RowGrid shape(1, rows, width);
  PD_LAUNCH(CopyRowsKernel, shape.grid, shape.block, stream, to, static_cast<size_t>(to_stride),
            from, static_cast<size_t>(from_stride), static_cast<size_t>(width),
            static_cast<size_t>(rows));
  return cudaGetLastError();
}

cudaError_t LaunchAddBias(float* y, const float* bias, ChannelShape shape, cudaStream_t stream) {
  if (shape.outer == 0 || shape.channels == 0 || shape.inner == 0) return cudaSuccess;
  const RowGrid rows(shape.outer, shape.channels, shape.inner);
  PD_LAUNCH(AddBiasKernel, rows.grid, rows.block, stream, y, bias, static_cast<size_t>(shape.outer),
            static_cast<size_t>(shape.channels), static_cast<size_t>(shape.inner));
  return cudaGetLastError();
}

cudaError_t LaunchBiasGradient(const float* dy, float* dbias, ChannelShape shape,
                               cudaStream_t stream) {
  if (shape.channels == 0) return cudaSuccess;
  const auto outer = static_cast<size_t>(shape.outer);
  const auto channels = static_cast<size_t>(shape.channels);
  const auto inner = static_cast<size_t>(shape.inner);
  if (inner == 1) {
    const dim3 block(kColumns, PowerOfTwo(shape.outer / 8, kSumThreads / kColumns));
    PD_LAUNCH_BARRIER(ColumnSumKernel, Blocks(channels, kColumns), block, stream, dy, dbias, outer,
                      channels);
  } else {
    // Some 32 elements a thread, neighbours in a row.
    const unsigned threads =
        PowerOfTwo(std::max<int64_t>(kColumns, shape.outer * shape.inner / 32), kSumThreads);
    dim3 block(PowerOfTwo(shape.inner, threads));
    block.y = threads / block.x;
    PD_LAUNCH_BARRIER(BiasGradientKernel, Blocks(channels, 1), block, stream, dy, dbias, outer,
                      channels, inner);
  }
  return cudaGetLastError();
}

}  // namespace pd::cuda
