#include <cmath>

#include "backend/cuda/block_sum.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace pd::cuda {
namespace {

constexpr unsigned kLossThreads = 256;
constexpr size_t kColumns = 4;  // kLossColumns, of op.h, which is C++20

/// The largest of the logits; NaN where the first is, as std::max_element on the host has it.
__device__ float Largest(const float* logits, size_t classes, float* scratch) {
  float largest = -INFINITY;
  for (size_t c = threadIdx.x; c < classes; c += blockDim.x) {
    if (logits[c] > largest) largest = logits[c];
  }
  largest = BlockLargest(largest, scratch);
  return std::isnan(logits[0]) ? logits[0] : largest;
}

// A block a target. probability = e^(logit - largest)/sum with sum = Σ e^(logit - largest); loss =
// log sum + largest - logit of the target; rank: the logits larger than the target's, or equal and
// earlier. The sum and what follows from it in double.
__global__ void LossKernel(const float* logits, const int32_t* targets, float* probability,
                           float* columns, size_t rows, size_t classes, int32_t ignored) {
  __shared__ double scratch[kLossThreads];
  __shared__ float values[kLossThreads];
  for (size_t n = blockIdx.x; n < rows; n += gridDim.x) {
    const float* x = logits + n * classes;
    const int32_t target = targets[n];
    const bool valid = target >= 0 && static_cast<size_t>(target) < classes;
    const float largest = Largest(x, classes, values);
    const float own = valid ? x[target] : NAN;
    double sum = 0, rank = 0;
    for (size_t c = threadIdx.x; c < classes; c += blockDim.x) {
      sum += static_cast<double>(expf(x[c] - largest));
      if (x[c] > own || (x[c] == own && c < static_cast<size_t>(target))) rank += 1;
    }
    sum = BlockSum(sum, scratch);
    rank = BlockSum(rank, scratch);
    const float inverse = valid ? static_cast<float>(1 / sum) : NAN;
    for (size_t c = threadIdx.x; c < classes; c += blockDim.x) {
      probability[n * classes + c] = expf(x[c] - largest) * inverse;
    }
    if (threadIdx.x != 0) continue;
    const bool counts = target != ignored;
    const double loss = log(sum) + (static_cast<double>(largest) - static_cast<double>(own));
    float* y = columns + n * kColumns;
    y[0] = counts ? static_cast<float>(loss) : 0.0F;
    y[1] = counts ? 1.0F : 0.0F;
    y[2] = valid && rank < 1 ? 1.0F : 0.0F;
    y[3] = valid && rank < 5 ? 1.0F : 0.0F;
  }
}

// y[n, column] = Σ over t of rows[n, t, column], in double. A block a sample and column.
__global__ void LossSumKernel(const float* rows, float* y, size_t samples, size_t targets) {
  __shared__ double scratch[kLossThreads];
  for (size_t i = blockIdx.x; i < samples * kColumns; i += gridDim.x) {
    const float* x = rows + i / kColumns * targets * kColumns + i % kColumns;
    double sum = 0;
    for (size_t t = threadIdx.x; t < targets; t += blockDim.x) {
      sum += static_cast<double>(x[t * kColumns]);
    }
    sum = BlockSum(sum, scratch);
    if (threadIdx.x == 0) y[i] = static_cast<float>(sum);
  }
}

// dlogits[n, c] = scale·(probability[n, c] - (c == targets[n])), or 0 where the target is ignored.
__global__ void LossBackwardKernel(const float* probability, const int32_t* targets, float* dlogits,
                                   size_t rows, size_t classes, float scale, int32_t ignored) {
  PD_LOOP(n, y, rows) {
    const int64_t right = targets[n];
    PD_LOOP(c, x, classes) {
      const float one = static_cast<int64_t>(c) == right ? 1.0F : 0.0F;
      const float d = scale * (probability[n * classes + c] - one);
      dlogits[n * classes + c] = right == ignored ? 0.0F : d;
    }
  }
}

}  // namespace

cudaError_t LaunchSoftmaxCrossEntropy(const float* logits, const int32_t* targets,
                                      float* probability, float* rows, float* y, LossShape shape,
                                      cudaStream_t stream) {
  const auto samples = static_cast<size_t>(shape.samples);
  const auto of_sample = static_cast<size_t>(shape.targets);
  const size_t count = samples * of_sample;
  if (count == 0 || shape.classes == 0) return cudaSuccess;
  float* columns = of_sample == 1 ? y : rows;
  PD_LAUNCH_BARRIER(LossKernel, Blocks(count, 1), PowerOfTwo(shape.classes, kLossThreads), stream,
                    logits, targets, probability, columns, count,
                    static_cast<size_t>(shape.classes), shape.ignored);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess || of_sample == 1) return error;
  PD_LAUNCH_BARRIER(LossSumKernel, Blocks(samples * kColumns, 1),
                    PowerOfTwo(shape.targets, kLossThreads), stream, columns, y, samples,
                    of_sample);
  return cudaGetLastError();
}

cudaError_t LaunchSoftmaxCrossEntropyBackward(const float* probability, const int32_t* targets,
                                              float* dlogits, LossShape shape, float scale,
                                              cudaStream_t stream) {
  const int64_t count = shape.samples * shape.targets;
  if (count == 0 || shape.classes == 0) return cudaSuccess;
  const RowGrid rows(1, count, shape.classes);
  PD_LAUNCH(LossBackwardKernel, rows.grid, rows.block, stream, probability, targets, dlogits,
            static_cast<size_t>(count), static_cast<size_t>(shape.classes), scale, shape.ignored);
  return cudaGetLastError();
}

}  // namespace pd::cuda
