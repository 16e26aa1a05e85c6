#include "backend/cuda/block_sum.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace pd::cuda {
namespace {

constexpr unsigned kRowThreads = 256;
constexpr unsigned kSumThreads = 1024;
constexpr unsigned kColumns = 32;  ///< Of one block where rows are summed.

/// A row's mean and 1/√(variance + eps).
struct Statistics {
  double mean, inverse;

  __device__ double Normal(float x) const { return (static_cast<double>(x) - mean) * inverse; }
};

// y = z·weight + bias: a block a row.
__global__ void LayerNormKernel(const float* x, const float* weight, const float* bias, float* y,
                                double* statistics, size_t rows, size_t width, double eps) {
  __shared__ double scratch[kRowThreads];
  for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* from = x + row * width;
    double sum = 0;
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) sum += static_cast<double>(from[i]);
    const double mean = BlockSum(sum, scratch) / static_cast<double>(width);
    double squares = 0;
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) {
      const double off = static_cast<double>(from[i]) - mean;
      squares += off * off;
    }
    const double variance = BlockSum(squares, scratch) / static_cast<double>(width);
    const Statistics of = {mean, 1 / sqrt(variance + eps)};
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) {
      y[row * width + i] = static_cast<float>(of.Normal(from[i])) * weight[i] + bias[i];
    }
    if (threadIdx.x == 0) {
      statistics[2 * row] = of.mean;
      statistics[2 * row + 1] = of.inverse;
    }
  }
}

// dx = inverse·(g - mean(g) - z·mean(g·z)), g = dy·weight: a block a row.
__global__ void LayerNormBackwardKernel(const float* x, const float* weight,
                                        const double* statistics, const float* dy, float* dx,
                                        size_t rows, size_t width) {
  __shared__ double scratch[kRowThreads];
  for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* from = x + row * width;
    const float* slope = dy + row * width;
    const Statistics of = {statistics[2 * row], statistics[2 * row + 1]};
    double sum = 0;
    double products = 0;
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) {
      const double g = static_cast<double>(slope[i]) * static_cast<double>(weight[i]);
      sum += g;
      products += g * of.Normal(from[i]);
    }
    sum = BlockSum(sum, scratch) / static_cast<double>(width);
    products = BlockSum(products, scratch) / static_cast<double>(width);
    for (size_t i = threadIdx.x; i < width; i += blockDim.x) {
      const double g = static_cast<double>(slope[i]) * static_cast<double>(weight[i]);
      dx[row * width + i] =
          static_cast<float>(of.inverse * (g - sum - of.Normal(from[i]) * products));
    }
  }
}

// dweight[c] = Σ dy·z over the rows: a block kColumns columns (x); its threads share the rows (y).
__global__ void __launch_bounds__(kSumThreads)
    LayerNormGradientKernel(const float* x, const double* statistics, const float* dy,
                            float* dweight, size_t rows, size_t width) {
  __shared__ double scratch[kSumThreads];
  for (size_t first = size_t{blockIdx.x} * kColumns; first < width;
       first += size_t{gridDim.x} * kColumns) {
    const size_t c = first + threadIdx.x;
    double sum = 0;
    for (size_t row = threadIdx.y; c < width && row < rows; row += blockDim.y) {
      const Statistics of = {statistics[2 * row], statistics[2 * row + 1]};
      sum += static_cast<double>(dy[row * width + c]) * of.Normal(x[row * width + c]);
    }
    sum = ColumnSum(sum, scratch);
    if (threadIdx.y == 0 && c < width) dweight[c] = static_cast<float>(sum);
  }
}

}  // namespace

cudaError_t LaunchLayerNorm(const float* x, const float* weight, const float* bias, float* y,
                            double* statistics, RowShape shape, double eps, cudaStream_t stream) {
  const auto rows = static_cast<size_t>(shape.rows);
  if (rows == 0 || shape.width == 0) return cudaSuccess;
  PD_LAUNCH_BARRIER(LayerNormKernel, Blocks(rows, 1), PowerOfTwo(shape.width, kRowThreads), stream,
                    x, weight, bias, y, statistics, rows, static_cast<size_t>(shape.width), eps);
  return cudaGetLastError();
}

cudaError_t LaunchLayerNormBackward(const float* x, const float* weight, const double* statistics,
                                    const float* dy, float* dx, RowShape shape,
                                    cudaStream_t stream) {
  const auto rows = static_cast<size_t>(shape.rows);
  if (rows == 0 || shape.width == 0) return cudaSuccess;
  PD_LAUNCH_BARRIER(LayerNormBackwardKernel, Blocks(rows, 1), PowerOfTwo(shape.width, kRowThreads),
                    stream, x, weight, statistics, dy, dx, rows, static_cast<size_t>(shape.width));
  return cudaGetLastError();
}

cudaError_t LaunchLayerNormGradient(const float* x, const double* statistics, const float* dy,
                                    float* dweight, RowShape shape, cudaStream_t stream) {
  const auto width = static_cast<size_t>(shape.width);
  if (width == 0) return cudaSuccess;
  const dim3 block(kColumns, PowerOfTwo(shape.rows / 8, kSumThreads / kColumns));
  PD_LAUNCH_BARRIER(LayerNormGradientKernel, Blocks(width, kColumns), block, stream, x, statistics,
                    dy, dweight, static_cast<size_t>(shape.rows), width);
  return cudaGetLastError();
}

}  // namespace pd::cuda
