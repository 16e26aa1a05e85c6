#include <cmath>

#include "backend/cuda/block_sum.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace pd::cuda {
namespace {

constexpr unsigned kLossThreads = 256;

/// A logit and its class; of equal ones the first class counts. A NaN is never the larger one.
struct Largest {
  float value;
  size_t at;

  __device__ void Take(float other, size_t other_at) {
    if (other > value || (other == value && other_at < at)) {
      value = other;
      at = other_at;
    }
  }
};

/// What std::max_element gives, as on the host: the first of the largest, and class 0 where that
/// is NaN.
__device__ Largest FirstLargest(const float* logits, size_t classes, float* values, size_t* at) {
  Largest largest = {-INFINITY, classes};
  for (size_t c = threadIdx.x; c < classes; c += blockDim.x) largest.Take(logits[c], c);
  values[threadIdx.x] = largest.value;
  at[threadIdx.x] = largest.at;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      const unsigned other = threadIdx.x + half;
      largest.Take(values[other], at[other]);
      values[threadIdx.x] = largest.value;
      at[threadIdx.x] = largest.at;
    }
    __syncthreads();
  }
  largest = {values[0], at[0]};
  if (std::isnan(logits[0])) largest = {logits[0], 0};
  __syncthreads();
  return largest;
}

// probability = e^(logit - largest)/sum with sum = Σ e^(logit - largest); loss = log sum + largest
// - logit of the label. A block a sample; the sum and what follows from it in double.
__global__ void LossKernel(const float* logits, const int32_t* label, float* probability,
                           float* loss, float* correct, size_t samples, size_t classes) {
  __shared__ double scratch[kLossThreads];
  __shared__ float values[kLossThreads];
  __shared__ size_t at[kLossThreads];
  for (size_t n = blockIdx.x; n < samples; n += gridDim.x) {
    const float* x = logits + n * classes;
    const Largest largest = FirstLargest(x, classes, values, at);
    double sum = 0;
    for (size_t c = threadIdx.x; c < classes; c += blockDim.x) {
      sum += static_cast<double>(expf(x[c] - largest.value));
    }
    sum = BlockSum(sum, scratch);
    const bool valid = label[n] >= 0 && static_cast<size_t>(label[n]) < classes;
    const float inverse = valid ? static_cast<float>(1 / sum) : NAN;
    for (size_t c = threadIdx.x; c < classes; c += blockDim.x) {
      probability[n * classes + c] = expf(x[c] - largest.value) * inverse;
    }
    if (threadIdx.x != 0) continue;
    const double below =
        valid ? static_cast<double>(largest.value) - static_cast<double>(x[label[n]]) : NAN;
    loss[n] = static_cast<float>(log(sum) + below);
    if (correct != nullptr) {
      correct[n] = valid && largest.at == static_cast<size_t>(label[n]) ? 1.0F : 0.0F;
    }
  }
}

// dlogits[n, c] = scale·(probability[n, c] - (c == label[n]))
__global__ void LossBackwardKernel(const float* probability, const int32_t* label, float* dlogits,
                                   size_t samples, size_t classes, float scale) {
  PD_LOOP(n, y, samples) {
    const int64_t right = label[n];
    PD_LOOP(c, x, classes) {
      const float one = static_cast<int64_t>(c) == right ? 1.0F : 0.0F;
      dlogits[n * classes + c] = scale * (probability[n * classes + c] - one);
    }
  }
}

}  // namespace

cudaError_t LaunchSoftmaxCrossEntropy(const float* logits, const int32_t* label, float* probability,
                                      float* loss, float* correct, int64_t samples, int64_t classes,
                                      cudaStream_t stream) {
  if (samples == 0 || classes == 0) return cudaSuccess;
  PD_LAUNCH_BARRIER(LossKernel, Blocks(static_cast<size_t>(samples), 1),
                    PowerOfTwo(classes, kLossThreads), stream, logits, label, probability, loss,
                    correct, static_cast<size_t>(samples), static_cast<size_t>(classes));
  return cudaGetLastError();
}

cudaError_t LaunchSoftmaxCrossEntropyBackward(const float* probability, const int32_t* label,
                                              float* dlogits, int64_t samples, int64_t classes,
                                              float scale, cudaStream_t stream) {
  if (samples == 0 || classes == 0) return cudaSuccess;
  const RowGrid rows(1, samples, classes);
  PD_LAUNCH(LossBackwardKernel, rows.grid, rows.block, stream, probability, label, dlogits,
            static_cast<size_t>(samples), static_cast<size_t>(classes), scale);
  return cudaGetLastError();
}

}  // namespace pd::cuda
