// cuDNN's softmax and its gradient.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cudnn_common.h"

namespace cuda_emulator::library {
namespace {

// A tensor as [outer axes] × [normalised axes].
struct Split {
  int outer_rank = 0, inner_rank = 0;
  int outer[kMaxRank] = {}, inner[kMaxRank] = {};

  Split(int rank, cudnnSoftmaxMode_t mode) {
    for (int i = 0; i < rank; ++i) {
      const bool normalised = mode == CUDNN_SOFTMAX_MODE_INSTANCE ? i >= 1 : i == 1;
      if (normalised) {
        inner[inner_rank++] = i;
      } else {
        outer[outer_rank++] = i;
      }
    }
  }
  TensorView Take(const TensorView& view, const int* axes, int count) const {
    TensorView result;
    result.rank = count;
    for (int i = 0; i < count; ++i) {
      result.dims[i] = view.dims[axes[i]];
      result.strides[i] = view.strides[axes[i]];
    }
    return result;
  }
  TensorView Outer(const TensorView& view) const { return Take(view, outer, outer_rank); }
  TensorView Inner(const TensorView& view) const { return Take(view, inner, inner_rank); }
};

void CheckEnums(cudnnSoftmaxAlgorithm_t algo, cudnnSoftmaxMode_t mode) {
  Require(algo >= CUDNN_SOFTMAX_FAST && algo <= CUDNN_SOFTMAX_LOG, Fault::kBadParam, "algo",
          "is no cudnnSoftmaxAlgorithm_t");
  Require(mode == CUDNN_SOFTMAX_MODE_INSTANCE || mode == CUDNN_SOFTMAX_MODE_CHANNEL,
          Fault::kBadParam, "mode", "is no cudnnSoftmaxMode_t");
}

// FAST does not subtract the maximum, so it overflows where f32 does.
double Exponential(double x, cudnnSoftmaxAlgorithm_t algo) {
  const double e = std::exp(x);
  if (algo != CUDNN_SOFTMAX_FAST) return e;
  return static_cast<double>(e > std::numeric_limits<float>::max() ? INFINITY : e);
}

void SoftmaxOf(cudnnSoftmaxAlgorithm_t algo, std::vector<double>& values) {
  const double shift =
      algo == CUDNN_SOFTMAX_FAST ? 0 : *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double v : values) sum += Exponential(v - shift, algo);
  for (double& v : values) {
    v = algo == CUDNN_SOFTMAX_LOG ? v - shift - std::log(sum) : Exponential(v - shift, algo) / sum;
  }
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo,
                                  cudnnSoftmaxMode_t mode, const void* alpha,
                                  const cudnnTensorDescriptor_t xDesc, const void* x,
                                  const void* beta, const cudnnTensorDescriptor_t yDesc, void* y) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    CheckEnums(algo, mode);
    const TensorView x_view = FloatTensor(xDesc, "xDesc"), y_view = FloatResult(yDesc, "yDesc");
    Require(x_view.SameDims(y_view), Fault::kBadParam, "xDesc", "has other dimensions than yDesc");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnSoftmaxForward");
    const float* in = operation.In(x, x_view, "x");
    float* out = operation.Out(y, y_view, "y");
    operation.Launch([=] {
      const Split split(x_view.rank, mode);
      const TensorView x_outer = split.Outer(x_view), y_outer = split.Outer(y_view);
      const TensorView x_inner = split.Inner(x_view), y_inner = split.Inner(y_view);
      std::vector<double> values(static_cast<size_t>(x_inner.Count()));
      ForEachIndex<2>(
          x_outer.rank, x_outer.dims, {x_outer.strides, y_outer.strides}, [&](const int64_t* at) {
            size_t i = 0;
            ForEachIndex<1>(x_inner.rank, x_inner.dims, {x_inner.strides},
                            [&](const int64_t* in_at) { values[i++] = in[at[0] + in_at[0]]; });
            SoftmaxOf(algo, values);
            i = 0;
            ForEachIndex<1>(
                y_inner.rank, y_inner.dims, {y_inner.strides},
                [&](const int64_t* out_at) { blend(values[i++], &out[at[1] + out_at[0]]); });
          });
    });
  });
}

// With s = Σ dy y over the normalised axes: dx = y (dy − s); LOG, with s = Σ dy: dx = dy − exp(y)
// s. dx may be dy (identical descriptors).
cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo,
                                   cudnnSoftmaxMode_t mode, const void* alpha,
                                   const cudnnTensorDescriptor_t yDesc, const void* y,
                                   const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                   const void* beta, const cudnnTensorDescriptor_t dxDesc,
                                   void* dx) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    CheckEnums(algo, mode);
    const TensorView y_view = FloatTensor(yDesc, "yDesc"), dy_view = FloatTensor(dyDesc, "dyDesc");
    const TensorView dx_view = FloatResult(dxDesc, "dxDesc");
    Require(y_view.SameDims(dy_view) && y_view.SameDims(dx_view), Fault::kBadParam, "tensors",
            "differ in dimensions");
    Require(y_view.SameStrides(dy_view), Fault::kBadParam, "yDesc",
            "has other strides than dyDesc");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnSoftmaxBackward");
    const float* y_data = operation.In(y, y_view, "y");
    const float* dy_data = operation.In(dy, dy_view, "dy");
    float* dx_data = operation.Out(dx, dx_view, "dx");
    AllowInPlace(operation, dy, dy_view, dx, dx_view);
    operation.Launch([=] {
      const Split split(y_view.rank, mode);
      const TensorView y_outer = split.Outer(y_view), dx_outer = split.Outer(dx_view);
      const TensorView y_inner = split.Inner(y_view), dx_inner = split.Inner(dx_view);
      const bool log = algo == CUDNN_SOFTMAX_LOG;
      ForEachIndex<2>(
          y_outer.rank, y_outer.dims, {y_outer.strides, dx_outer.strides}, [&](const int64_t* at) {
            double sum = 0;
            ForEachIndex<1>(y_inner.rank, y_inner.dims, {y_inner.strides}, [&](const int64_t* in) {
              const double g = dy_data[at[0] + in[0]];
              sum += log ? g : g * y_data[at[0] + in[0]];
            });
            ForEachIndex<2>(y_inner.rank, y_inner.dims, {y_inner.strides, dx_inner.strides},
                            [&](const int64_t* in) {
                              const double value = y_data[at[0] + in[0]];
                              const double g = dy_data[at[0] + in[0]];
                              blend(log ? g - std::exp(value) * sum : value * (g - sum),
                                    &dx_data[at[1] + in[1]]);
                            });
          });
    });
  });
}

}  // extern "C"
