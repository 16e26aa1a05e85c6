// cuDNN's element-wise tensor functions: set, scale, transform, add, and cudnnOpTensor.

#include <algorithm>
#include <cmath>

#include "cudnn_common.h"

namespace cuda_emulator::library {
namespace {

// `view` seen with the dimensions of `target`: an axis of size 1 repeats, by a stride of 0.
TensorView Broadcast(TensorView view, const TensorView& target, const char* name) {
  Require(view.rank == target.rank, Fault::kBadParam, name, "has another number of dimensions");
  for (int i = 0; i < view.rank; ++i) {
    Require(view.dims[i] == target.dims[i] || view.dims[i] == 1, Fault::kBadParam, name,
            "has a dimension that is neither 1 nor the result's");
    if (view.dims[i] == 1) view.strides[i] = 0;
    view.dims[i] = target.dims[i];
  }
  return view;
}

double Extreme(double a, double b, bool largest, bool propagate_nan) {
  if (std::isnan(a) || std::isnan(b)) {
    if (propagate_nan) return NAN;
    return std::isnan(a) ? b : a;
  }
  return largest ? std::max(a, b) : std::min(a, b);
}

double Combine(const cudnnOpTensorStruct& op, double a, double b) {
  switch (op.op) {
    case CUDNN_OP_TENSOR_ADD:
      return a + b;
    case CUDNN_OP_TENSOR_MUL:
      return a * b;
    case CUDNN_OP_TENSOR_MIN:
    case CUDNN_OP_TENSOR_MAX:
      return Extreme(a, b, op.op == CUDNN_OP_TENSOR_MAX, op.nan == CUDNN_PROPAGATE_NAN);
    case CUDNN_OP_TENSOR_SQRT:
      return std::sqrt(a);
    case CUDNN_OP_TENSOR_NOT:
      return 1 - a;
  }
  return NAN;
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnSetTensor(cudnnHandle_t handle, const cudnnTensorDescriptor_t yDesc, void* y,
                             const void* valuePtr) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const TensorView view = FloatResult(yDesc, "yDesc");
    const float value = HostScalar(valuePtr, "valuePtr");
    Operation operation(use.Stream(), "cudnnSetTensor");
    float* out = operation.Out(y, view, "y");
    operation.Launch([=] {
      ForEachIndex<1>(view.rank, view.dims, {view.strides},
                      [&](const int64_t* at) { out[at[0]] = value; });
    });
  });
}

cudnnStatus_t cudnnScaleTensor(cudnnHandle_t handle, const cudnnTensorDescriptor_t yDesc, void* y,
                               const void* alpha) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const TensorView view = FloatResult(yDesc, "yDesc");
    const float factor = HostScalar(alpha, "alpha");
    Operation operation(use.Stream(), "cudnnScaleTensor");
    float* out = operation.Out(y, view, "y");
    operation.Launch([=] {
      ForEachIndex<1>(view.rank, view.dims, {view.strides},
                      [&](const int64_t* at) { out[at[0]] *= factor; });
    });
  });
}

// y = alpha x + beta y, the same dimensions in another layout; x and y must not overlap.
cudnnStatus_t cudnnTransformTensor(cudnnHandle_t handle, const void* alpha,
                                   const cudnnTensorDescriptor_t xDesc, const void* x,
                                   const void* beta, const cudnnTensorDescriptor_t yDesc, void* y) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const TensorView x_view = FloatTensor(xDesc, "xDesc");
    const TensorView y_view = FloatResult(yDesc, "yDesc");
    Require(x_view.SameDims(y_view), Fault::kBadParam, "xDesc", "has other dimensions than yDesc");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnTransformTensor");
    const float* in = operation.In(x, x_view, "x");
    float* out = operation.Out(y, y_view, "y");
    operation.Launch([=] {
      ForEachIndex<2>(y_view.rank, y_view.dims, {x_view.strides, y_view.strides},
                      [&](const int64_t* at) { blend(in[at[0]], &out[at[1]]); });
    });
  });
}

// C = alpha A + beta C, A broadcast along its axes of size 1.
cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void* alpha,
                             const cudnnTensorDescriptor_t aDesc, const void* A, const void* beta,
                             const cudnnTensorDescriptor_t cDesc, void* C) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const TensorView c_view = FloatResult(cDesc, "cDesc");
    const TensorView a_view = FloatTensor(aDesc, "aDesc");
    const TensorView a_repeated = Broadcast(a_view, c_view, "aDesc");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnAddTensor");
    const float* a = operation.In(A, a_view, "A");
    float* c = operation.Out(C, c_view, "C");
    operation.Launch([=] {
      ForEachIndex<2>(c_view.rank, c_view.dims, {a_repeated.strides, c_view.strides},
                      [&](const int64_t* at) { blend(a[at[0]], &c[at[1]]); });
    });
  });
}

cudnnStatus_t cudnnCreateOpTensorDescriptor(cudnnOpTensorDescriptor_t* opTensorDesc) {
  return CreateDescriptor(__func__, opTensorDesc);
}

cudnnStatus_t cudnnDestroyOpTensorDescriptor(cudnnOpTensorDescriptor_t opTensorDesc) {
  return DestroyDescriptor(__func__, opTensorDesc);
}

cudnnStatus_t cudnnSetOpTensorDescriptor(cudnnOpTensorDescriptor_t opTensorDesc,
                                         cudnnOpTensorOp_t opTensorOp,
                                         cudnnDataType_t opTensorCompType,
                                         cudnnNanPropagation_t opTensorNanOpt) {
  return CudnnCall(__func__, [&] {
    Require(opTensorOp >= CUDNN_OP_TENSOR_ADD && opTensorOp <= CUDNN_OP_TENSOR_NOT,
            Fault::kBadParam, "opTensorOp", "is no cudnnOpTensorOp_t");
    Require(ValidDataType(opTensorCompType), Fault::kBadParam, "opTensorCompType", "is no type");
    Require(ValidNan(opTensorNanOpt), Fault::kBadParam, "opTensorNanOpt", "is no option");
    Writable(opTensorDesc, "opTensorDesc") = {true, opTensorOp, opTensorCompType, opTensorNanOpt};
  });
}

cudnnStatus_t cudnnGetOpTensorDescriptor(const cudnnOpTensorDescriptor_t opTensorDesc,
                                         cudnnOpTensorOp_t* opTensorOp,
                                         cudnnDataType_t* opTensorCompType,
                                         cudnnNanPropagation_t* opTensorNanOpt) {
  return CudnnCall(__func__, [&] {
    const cudnnOpTensorStruct& op = Described(opTensorDesc, "opTensorDesc");
    Put(opTensorOp, op.op);
    Put(opTensorCompType, op.compute_type);
    Put(opTensorNanOpt, op.nan);
  });
}

// C = op(alpha1 A, alpha2 B) + beta C; A has C's dimensions, B is broadcast. B is not read for SQRT
// and NOT. C may be A (the same descriptor); C may be B only when A is it too.
cudnnStatus_t cudnnOpTensor(cudnnHandle_t handle, const cudnnOpTensorDescriptor_t opTensorDesc,
                            const void* alpha1, const cudnnTensorDescriptor_t aDesc, const void* A,
                            const void* alpha2, const cudnnTensorDescriptor_t bDesc, const void* B,
                            const void* beta, const cudnnTensorDescriptor_t cDesc, void* C) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const cudnnOpTensorStruct op = Described(opTensorDesc, "opTensorDesc");
    Require(op.compute_type == CUDNN_DATA_FLOAT, Fault::kNotSupported, "opTensorCompType",
            "is not CUDNN_DATA_FLOAT");
    const TensorView a_view = FloatTensor(aDesc, "aDesc");
    const TensorView c_view = FloatResult(cDesc, "cDesc");
    Require(a_view.SameDims(c_view), Fault::kBadParam, "aDesc", "has other dimensions than cDesc");
    const float a_factor = HostScalar(alpha1, "alpha1");
    const float beta_factor = HostScalar(beta, "beta");
    const bool unary = op.op == CUDNN_OP_TENSOR_SQRT || op.op == CUDNN_OP_TENSOR_NOT;

    Operation operation(use.Stream(), "cudnnOpTensor");
    const float* a = operation.In(A, a_view, "A");
    TensorView b_repeated = a_view;
    const float* b = a;
    float b_factor = 0;
    if (!unary) {
      const TensorView b_view = FloatTensor(bDesc, "bDesc");
      b_repeated = Broadcast(b_view, c_view, "bDesc");
      b_factor = HostScalar(alpha2, "alpha2");
      b = operation.In(B, b_view, "B");
      Require(B != C || A == C, Fault::kBadParam, "B", "is C, which A is not");
      AllowInPlace(operation, B, b_view, C, c_view);
    }
    float* c = operation.Out(C, c_view, "C");
    AllowInPlace(operation, A, a_view, C, c_view);
    operation.Launch([=] {
      const Blend blend{1, beta_factor};
      ForEachIndex<3>(c_view.rank, c_view.dims,
                      {a_view.strides, b_repeated.strides, c_view.strides}, [&](const int64_t* at) {
                        const double left = static_cast<double>(a_factor) * a[at[0]];
                        const double right = static_cast<double>(b_factor) * b[at[1]];
                        blend(Combine(op, left, right), &c[at[2]]);
                      });
    });
  });
}

}  // extern "C"
