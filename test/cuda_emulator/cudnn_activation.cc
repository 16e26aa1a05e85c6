// cuDNN's activation functions and their gradients.

#include <algorithm>
#include <cmath>

#include "cudnn_common.h"

namespace cuda_emulator::library {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double Clip(double x, double ceiling, cudnnNanPropagation_t nan) {
  if (std::isnan(x)) return nan == CUDNN_PROPAGATE_NAN ? x : 0;
  return std::min(std::max(x, 0.0), ceiling);
}

double Activate(const cudnnActivationStruct& activation, double x) {
  switch (activation.mode) {
    case CUDNN_ACTIVATION_SIGMOID:
      return Sigmoid(x);
    case CUDNN_ACTIVATION_RELU:
      return Clip(x, INFINITY, activation.nan);
    case CUDNN_ACTIVATION_TANH:
      return std::tanh(x);
    case CUDNN_ACTIVATION_CLIPPED_RELU:
      return Clip(x, activation.coefficient, activation.nan);
    case CUDNN_ACTIVATION_ELU:
      return x > 0 ? x : activation.coefficient * std::expm1(x);
    case CUDNN_ACTIVATION_SWISH:
      return x * Sigmoid(activation.swish_beta * x);
    case CUDNN_ACTIVATION_IDENTITY:
      break;
  }
  return NAN;
}

// The derivative at x, where y = Activate(x). The documentation asks for both and does not say
// which the library reads; after a forward pass in place x is y. So one that contradicts the other
// gives NaN, and the rectifiers, for which x = y decides too, take both.
double Derivative(const cudnnActivationStruct& activation, double x, double y) {
  switch (activation.mode) {
    case CUDNN_ACTIVATION_SIGMOID:
      return y * (1 - y);
    case CUDNN_ACTIVATION_TANH:
      return 1 - y * y;
    case CUDNN_ACTIVATION_RELU:
      if ((x > 0) != (y > 0)) return NAN;
      return y > 0 ? 1 : 0;
    case CUDNN_ACTIVATION_CLIPPED_RELU:
      if ((x > 0) != (y > 0) || (x < activation.coefficient) != (y < activation.coefficient)) {
        return NAN;
      }
      return y > 0 && y < activation.coefficient ? 1 : 0;
    case CUDNN_ACTIVATION_ELU:
      if ((x > 0) != (y > 0)) return NAN;
      return y > 0 ? 1 : y + activation.coefficient;
    case CUDNN_ACTIVATION_SWISH: {
      const double s = Sigmoid(activation.swish_beta * x);
      return s + activation.swish_beta * x * s * (1 - s);
    }
    case CUDNN_ACTIVATION_IDENTITY:
      break;
  }
  return NAN;
}

cudnnActivationStruct Usable(const cudnnActivationStruct* descriptor) {
  const cudnnActivationStruct activation = Described(descriptor, "activationDesc");
  Require(activation.mode != CUDNN_ACTIVATION_IDENTITY, Fault::kBadParam, "activationDesc",
          "CUDNN_ACTIVATION_IDENTITY is for fused convolutions only");
  return activation;
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activationDesc) {
  return CreateDescriptor(__func__, activationDesc);
}

cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activationDesc) {
  return DestroyDescriptor(__func__, activationDesc);
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activationDesc,
                                           cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t reluNanOpt, double coef) {
  return CudnnCall(__func__, [&] {
    Require(mode >= CUDNN_ACTIVATION_SIGMOID && mode <= CUDNN_ACTIVATION_SWISH, Fault::kBadParam,
            "mode", "is no cudnnActivationMode_t");
    Require(ValidNan(reluNanOpt), Fault::kBadParam, "reluNanOpt", "is no option");
    Writable(activationDesc, "activationDesc") = {true, mode, reluNanOpt, coef, 1.0};
  });
}

cudnnStatus_t cudnnGetActivationDescriptor(const cudnnActivationDescriptor_t activationDesc,
                                           cudnnActivationMode_t* mode,
                                           cudnnNanPropagation_t* reluNanOpt, double* coef) {
  return CudnnCall(__func__, [&] {
    const cudnnActivationStruct& activation = Described(activationDesc, "activationDesc");
    Put(mode, activation.mode);
    Put(reluNanOpt, activation.nan);
    Put(coef, activation.coefficient);
  });
}

// y = alpha · f(x) + beta y. In place with identical descriptors.
cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle,
                                     cudnnActivationDescriptor_t activationDesc, const void* alpha,
                                     const cudnnTensorDescriptor_t xDesc, const void* x,
                                     const void* beta, const cudnnTensorDescriptor_t yDesc,
                                     void* y) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const cudnnActivationStruct activation = Usable(activationDesc);
    const TensorView x_view = FloatTensor(xDesc, "xDesc");
    const TensorView y_view = FloatResult(yDesc, "yDesc");
    Require(x_view.SameDims(y_view), Fault::kBadParam, "xDesc", "has other dimensions than yDesc");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnActivationForward");
    const float* in = operation.In(x, x_view, "x");
    float* out = operation.Out(y, y_view, "y");
    AllowInPlace(operation, x, x_view, y, y_view);
    operation.Launch([=] {
      ForEachIndex<2>(
          x_view.rank, x_view.dims, {x_view.strides, y_view.strides},
          [&](const int64_t* at) { blend(Activate(activation, in[at[0]]), &out[at[1]]); });
    });
  });
}

// dx = alpha · f'(x) dy + beta dx, with y = f(x). dx may be dy (identical descriptors).
cudnnStatus_t cudnnActivationBackward(cudnnHandle_t handle,
                                      cudnnActivationDescriptor_t activationDesc, const void* alpha,
                                      const cudnnTensorDescriptor_t yDesc, const void* y,
                                      const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                      const cudnnTensorDescriptor_t xDesc, const void* x,
                                      const void* beta, const cudnnTensorDescriptor_t dxDesc,
                                      void* dx) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const cudnnActivationStruct activation = Usable(activationDesc);
    const TensorView y_view = FloatTensor(yDesc, "yDesc"), dy_view = FloatTensor(dyDesc, "dyDesc");
    const TensorView x_view = FloatTensor(xDesc, "xDesc"), dx_view = FloatResult(dxDesc, "dxDesc");
    Require(x_view.SameDims(y_view) && x_view.SameDims(dy_view) && x_view.SameDims(dx_view),
            Fault::kNotSupported, "tensors", "differ in dimensions");
    Require(x_view.SameStrides(dx_view), Fault::kNotSupported, "xDesc",
            "has other strides than dxDesc");
    Require(y_view.SameStrides(dy_view), Fault::kNotSupported, "yDesc",
            "has other strides than dyDesc");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnActivationBackward");
    const float* y_data = operation.In(y, y_view, "y");
    const float* dy_data = operation.In(dy, dy_view, "dy");
    const float* x_data = operation.In(x, x_view, "x");
    float* dx_data = operation.Out(dx, dx_view, "dx");
    AllowInPlace(operation, dy, dy_view, dx, dx_view);
    operation.Launch([=] {
      ForEachIndex<2>(x_view.rank, x_view.dims, {x_view.strides, y_view.strides},
                      [&](const int64_t* at) {
                        const double slope = Derivative(activation, x_data[at[0]], y_data[at[1]]);
                        blend(slope * dy_data[at[1]], &dx_data[at[0]]);
                      });
    });
  });
}

}  // extern "C"
