#include <cmath>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "base/random.h"

// One thread an element. Built with -fmad=false: each product and sum is rounded by itself, as on
// the host, so the results promised bit for bit are the host's.

namespace pd::cuda {
namespace {

// acc = acc + x
__global__ void AccumulateKernel(float* acc, const float* x, size_t count) {
  PD_LOOP(i, x, count) acc[i] += x[i];
}

// sum = a + b
__global__ void SumKernel(float* sum, const float* a, const float* b, size_t count) {
  PD_LOOP(i, x, count) sum[i] = a[i] + b[i];
}

// g' = g + decay·w; m' = momentum·m + g'; w' = w - lr·m'
template <bool kMomentum, bool kDecay>
__global__ void SgdKernel(const float* w, const float* g, float* m, float* w_out, size_t count,
                          float lr, float momentum, float decay) {
  PD_LOOP(i, x, count) {
    const float weight = w[i];
    float step = g[i];
    if (kDecay) step = step + decay * weight;
    if (kMomentum) {
      step = momentum * m[i] + step;
      m[i] = step;
    }
    w_out[i] = weight - lr * step;
  }
}

// relu: x <= 0 ? 0 : x; tanh x; sigmoid: 1/(1 + e^-x)
template <ActivationKind kKind>
__global__ void ActivationKernel(const float* x, float* y, size_t count) {
  PD_LOOP(i, x, count) {
    const float value = x[i];
    if (kKind == ActivationKind::kRelu) y[i] = value <= 0 ? 0.0F : value;
    if (kKind == ActivationKind::kTanh) y[i] = tanhf(value);
    if (kKind == ActivationKind::kSigmoid) y[i] = 1.0F / (1.0F + expf(-value));
  }
}

// relu: y <= 0 ? 0 : dy; tanh: dy·(1 - y²); sigmoid: dy·y·(1 - y)
template <ActivationKind kKind>
__global__ void ActivationBackwardKernel(const float* y, const float* dy, float* dx, size_t count) {
  PD_LOOP(i, x, count) {
    const float value = y[i];
    if (kKind == ActivationKind::kRelu) dx[i] = value <= 0 ? 0.0F : dy[i];
    if (kKind == ActivationKind::kTanh) dx[i] = dy[i] * (1.0F - value * value);
    if (kKind == ActivationKind::kSigmoid) dx[i] = dy[i] * value * (1.0F - value);
  }
}

/// What of x passes, and the slope of that.
template <bool kTanh>
struct GeluShare {
  float share, slope;

  __device__ explicit GeluShare(float x) {
    const float root = 0.79788456080286535588F;  // √(2/π)
    if (kTanh) {
      const float cubic = 0.044715F;
      const float t = tanhf(root * (x + cubic * x * x * x));
      share = 0.5F * (1.0F + t);
      slope = 0.5F * (1.0F - t * t) * root * (1.0F + 3.0F * cubic * x * x);
    } else {
      share = 0.5F * erfcf(x * -0.70710678118654752440F);  // keeps the digits of a small Φ(x)
      slope = 0.5F * root * expf(-0.5F * x * x);
    }
  }
};

// y = x·share
template <bool kTanh>
__global__ void GeluKernel(const float* x, float* y, size_t count) {
  PD_LOOP(i, x, count) y[i] = x[i] * GeluShare<kTanh>(x[i]).share;
}

// dx = dy·(share + x·slope)
template <bool kTanh>
__global__ void GeluBackwardKernel(const float* x, const float* dy, float* dx, size_t count) {
  PD_LOOP(i, x, count) {
    const GeluShare<kTanh> gelu(x[i]);
    dx[i] = dy[i] * (gelu.share + x[i] * gelu.slope);
  }
}

// y = keeps ? x/kept : 0. A thread takes the four elements that one Philox call decides on
// (DropoutKeeps, written out).
__global__ void DropoutKernel(const float* x, float* y, size_t count, uint64_t key,
                              uint64_t minibatch, float p, float kept) {
  PD_LOOP(group, x, (count + 3) / 4) {
    const PhiloxBlock bits = Philox(key, minibatch, group);
    for (size_t j = 0; j < 4; ++j) {
      const size_t i = 4 * group + j;
      if (i < count) y[i] = ToUniform(bits[j]) >= p ? x[i] / kept : 0.0F;
    }
  }
}

// y = (x - x)·weight + bias; running_mean = (1 - momentum)·running_mean + momentum·x;
// running_var = (1 - momentum)·running_var + momentum·0
__global__ void BatchNormOfOneKernel(const float* x, const float* weight, const float* bias,
                                     float* y, float* running_mean, float* running_var,
                                     double momentum, size_t channels) {
  PD_LOOP(c, x, channels) {
    y[c] = (x[c] - x[c]) * weight[c] + bias[c];
    running_mean[c] = static_cast<float>((1 - momentum) * static_cast<double>(running_mean[c]) +
                                         momentum * static_cast<double>(x[c]));
    running_var[c] = static_cast<float>((1 - momentum) * static_cast<double>(running_var[c]));
  }
}

}  // namespace

cudaError_t LaunchAccumulate(float* acc, const float* x, size_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  PD_LAUNCH(AccumulateKernel, Blocks(count, kThreads), kThreads, stream, acc, x, count);
  return cudaGetLastError();
}

cudaError_t LaunchSum(float* sum, const float* a, const float* b, size_t count,
                      cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  PD_LAUNCH(SumKernel, Blocks(count, kThreads), kThreads, stream, sum, a, b, count);
  return cudaGetLastError();
}

cudaError_t LaunchSgd(const float* w, const float* g, float* m, float* w_out, size_t count,
                      SgdStep step, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const unsigned grid = Blocks(count, kThreads);
  const float lr = step.lr;
  const float momentum = step.momentum;
  const float decay = step.weight_decay;
  if (momentum != 0 && decay != 0) {
    PD_LAUNCH((SgdKernel<true, true>), grid, kThreads, stream, w, g, m, w_out, count, lr, momentum,
              decay);
  } else if (momentum != 0) {
    PD_LAUNCH((SgdKernel<true, false>), grid, kThreads, stream, w, g, m, w_out, count, lr, momentum,
              decay);
  } else if (decay != 0) {
    PD_LAUNCH((SgdKernel<false, true>), grid, kThreads, stream, w, g, m, w_out, count, lr, momentum,
              decay);
  } else {
    PD_LAUNCH((SgdKernel<false, false>), grid, kThreads, stream, w, g, m, w_out, count, lr,
              momentum, decay);
  }
  return cudaGetLastError();
}

cudaError_t LaunchActivation(ActivationKind kind, const float* x, float* y, size_t count,
                             cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const unsigned grid = Blocks(count, kThreads);
  switch (kind) {
    case ActivationKind::kRelu:
      PD_LAUNCH((ActivationKernel<ActivationKind::kRelu>), grid, kThreads, stream, x, y, count);
      break;
    case ActivationKind::kTanh:
      PD_LAUNCH((ActivationKernel<ActivationKind::kTanh>), grid, kThreads, stream, x, y, count);
      break;
    case ActivationKind::kSigmoid:
      PD_LAUNCH((ActivationKernel<ActivationKind::kSigmoid>), grid, kThreads, stream, x, y, count);
      break;
  }
  return cudaGetLastError();
}

cudaError_t LaunchActivationBackward(ActivationKind kind, const float* y, const float* dy,
                                     float* dx, size_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const unsigned grid = Blocks(count, kThreads);
  switch (kind) {
    case ActivationKind::kRelu:
      PD_LAUNCH((ActivationBackwardKernel<ActivationKind::kRelu>), grid, kThreads, stream, y, dy,
                dx, count);
      break;
    case ActivationKind::kTanh:
      PD_LAUNCH((ActivationBackwardKernel<ActivationKind::kTanh>), grid, kThreads, stream, y, dy,
                dx, count);
      break;
    case ActivationKind::kSigmoid:
      PD_LAUNCH((ActivationBackwardKernel<ActivationKind::kSigmoid>), grid, kThreads, stream, y, dy,
                dx, count);
      break;
  }
  return cudaGetLastError();
}

cudaError_t LaunchGelu(bool tanh, const float* x, float* y, size_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const unsigned grid = Blocks(count, kThreads);
  if (tanh) {
    PD_LAUNCH((GeluKernel<true>), grid, kThreads, stream, x, y, count);
  } else {
    PD_LAUNCH((GeluKernel<false>), grid, kThreads, stream, x, y, count);
  }
  return cudaGetLastError();
}

cudaError_t LaunchGeluBackward(bool tanh, const float* x, const float* dy, float* dx, size_t count,
                               cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const unsigned grid = Blocks(count, kThreads);
  if (tanh) {
    PD_LAUNCH((GeluBackwardKernel<true>), grid, kThreads, stream, x, dy, dx, count);
  } else {
    PD_LAUNCH((GeluBackwardKernel<false>), grid, kThreads, stream, x, dy, dx, count);
  }
  return cudaGetLastError();
}

cudaError_t LaunchDropout(const float* x, float* y, size_t count, uint64_t key, uint64_t minibatch,
                          float p, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  PD_LAUNCH(DropoutKernel, Blocks(count, 4 * kThreads), kThreads, stream, x, y, count, key,
            minibatch, p, 1.0F - p);
  return cudaGetLastError();
}

cudaError_t LaunchBatchNormOfOne(const float* x, const float* weight, const float* bias, float* y,
                                 float* running_mean, float* running_var, double momentum,
                                 int64_t channels, cudaStream_t stream) {
  const auto count = static_cast<size_t>(channels);
  if (count == 0) return cudaSuccess;
  PD_LAUNCH(BatchNormOfOneKernel, Blocks(count, kThreads), kThreads, stream, x, weight, bias, y,
            running_mean, running_var, momentum, count);
  return cudaGetLastError();
}

}  // namespace pd::cuda
