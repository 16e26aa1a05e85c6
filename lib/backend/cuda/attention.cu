#include <cmath>

#include "backend/cuda/block_sum.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

// The softmax between attention's products: a block a row.

namespace pd::cuda {
namespace {

constexpr unsigned kScoreThreads = 256;

/// How many columns of a row count.
__device__ size_t Seen(size_t row, size_t steps, bool causal) {
  return causal ? row % steps + 1 : steps;
}

// p[r, c] = e^(s - largest) / Σ e^(s - largest), 0 where it does not count
__global__ void ScoreSoftmaxKernel(float* scores, size_t rows, size_t steps, bool causal) {
  __shared__ float largest_scratch[kScoreThreads];
  __shared__ double scratch[kScoreThreads];
  for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float* p = scores + row * steps;
    const size_t seen = Seen(row, steps, causal);
    float largest = -INFINITY;
    for (size_t c = threadIdx.x; c < seen; c += blockDim.x) largest = fmaxf(largest, p[c]);
    largest = BlockLargest(largest, largest_scratch);
    double sum = 0;
    for (size_t c = threadIdx.x; c < seen; c += blockDim.x) {
      p[c] = expf(p[c] - largest);
      sum += static_cast<double>(p[c]);
    }
    const auto inverse = static_cast<float>(1 / BlockSum(sum, scratch));
    for (size_t c = threadIdx.x; c < steps; c += blockDim.x) p[c] = c < seen ? p[c] * inverse : 0;
  }
}

// d = scale·p·(d - Σ p·d)
__global__ void ScoreSoftmaxBackwardKernel(const float* probability, float* d, size_t rows,
                                           size_t steps, float scale) {
  __shared__ double scratch[kScoreThreads];
  for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* p = probability + row * steps;
    float* to = d + row * steps;
    double sum = 0;
    for (size_t c = threadIdx.x; c < steps; c += blockDim.x) {
      sum += static_cast<double>(p[c]) * static_cast<double>(to[c]);
    }
    const auto mean = static_cast<float>(BlockSum(sum, scratch));
    for (size_t c = threadIdx.x; c < steps; c += blockDim.x) {
      to[c] = scale * (p[c] * (to[c] - mean));
    }
  }
}

}  // namespace

cudaError_t LaunchScoreSoftmax(float* scores, ScoreShape shape, cudaStream_t stream) {
  const auto rows = static_cast<size_t>(shape.matrices * shape.steps);
  if (rows == 0) return cudaSuccess;
  PD_LAUNCH_BARRIER(ScoreSoftmaxKernel, Blocks(rows, 1), PowerOfTwo(shape.steps, kScoreThreads),
                    stream, scores, rows, static_cast<size_t>(shape.steps), shape.causal);
  return cudaGetLastError();
}

cudaError_t LaunchScoreSoftmaxBackward(const float* probability, float* d, ScoreShape shape,
                                       float scale, cudaStream_t stream) {
  const auto rows = static_cast<size_t>(shape.matrices * shape.steps);
  if (rows == 0) return cudaSuccess;
  PD_LAUNCH_BARRIER(ScoreSoftmaxBackwardKernel, Blocks(rows, 1),
                    PowerOfTwo(shape.steps, kScoreThreads), stream, probability, d, rows,
                    static_cast<size_t>(shape.steps), scale);
  return cudaGetLastError();
}

}  // namespace pd::cuda
