// cuBLAS with vectors: axpy, scal, copy, dot, asum, nrm2.

#include <cmath>
#include <memory>

#include "cublas_common.h"

namespace cuda_emulator::library {
namespace {

// A sum over n elements into `result`, which is host or device memory as the pointer mode says.
// With host memory the call returns when the result is there, as documented.
template <class Value>
void Reduce(const HandleUse& use, cublasContext& handle, Operation& operation, int n, float* result,
            Value&& value) {
  if (handle.pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    float* out = operation.Out(result, Dense({1}), "result");
    operation.Launch([=] { *out = static_cast<float>(value(n)); });
    return;
  }
  RequireHost(result, "result");
  const auto kept = std::make_shared<float>();
  operation.Launch([=] { *kept = static_cast<float>(value(n)); });
  if (cudaStreamSynchronize(use.Stream()) != cudaSuccess) throw Refused{Fault::kExecution, {}};
  *result = *kept;
}

// The result of no elements is 0.
bool Empty(const cublasContext& handle, int n, float* result) {
  RequireSize(n, "n");
  if (n > 0) return false;
  Require(handle.pointer_mode == CUBLAS_POINTER_MODE_HOST, Fault::kNotSupported, "n",
          "is 0 with a result on the device, which is not emulated");
  RequireHost(result, "result");
  *result = 0;
  return true;
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cublasStatus_t cublasSaxpy_v2(cublasHandle_t handle, int n, const float* alpha, const float* x,
                              int incx, float* y, int incy) {
  static constexpr const char* kApi = "cublasSaxpy";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    RequireSize(n, "n");
    const TensorView x_view = Vector(n, incx, "incx"), y_view = Vector(n, incy, "incy");
    if (n == 0) return;
    Operation operation(use.Stream(), kApi);
    const Scalar factor(operation, *handle, alpha, "alpha");
    const float* in = operation.In(x, x_view, "x");
    float* out = operation.Out(y, y_view, "y");
    operation.Launch([=] {
      const Blend blend{factor.Value(), 1};
      for (int64_t i = 0; i < n; ++i) blend(in[i * incx], &out[i * incy]);
    });
  });
}

cublasStatus_t cublasSscal_v2(cublasHandle_t handle, int n, const float* alpha, float* x,
                              int incx) {
  static constexpr const char* kApi = "cublasSscal";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    RequireSize(n, "n");
    const TensorView view = Vector(n, incx, "incx");
    if (n == 0) return;
    Operation operation(use.Stream(), kApi);
    const Scalar factor(operation, *handle, alpha, "alpha");
    float* out = operation.Out(x, view, "x");
    operation.Launch([=] {
      const float value = factor.Value();
      for (int64_t i = 0; i < n; ++i) out[i * incx] *= value;
    });
  });
}

cublasStatus_t cublasScopy_v2(cublasHandle_t handle, int n, const float* x, int incx, float* y,
                              int incy) {
  static constexpr const char* kApi = "cublasScopy";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    RequireSize(n, "n");
    const TensorView x_view = Vector(n, incx, "incx"), y_view = Vector(n, incy, "incy");
    if (n == 0) return;
    Operation operation(use.Stream(), kApi);
    const float* in = operation.In(x, x_view, "x");
    float* out = operation.Out(y, y_view, "y");
    operation.Launch([=] {
      for (int64_t i = 0; i < n; ++i) out[i * incy] = in[i * incx];
    });
  });
}

cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int n, const float* x, int incx, const float* y,
                             int incy, float* result) {
  static constexpr const char* kApi = "cublasSdot";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    if (Empty(*handle, n, result)) return;
    Operation operation(use.Stream(), kApi);
    const float* a = operation.In(x, Vector(n, incx, "incx"), "x");
    const float* b = operation.In(y, Vector(n, incy, "incy"), "y");
    Reduce(use, *handle, operation, n, result, [=](int64_t count) {
      double sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i * incx]) * b[i * incy];
      return sum;
    });
  });
}

cublasStatus_t cublasSasum_v2(cublasHandle_t handle, int n, const float* x, int incx,
                              float* result) {
  static constexpr const char* kApi = "cublasSasum";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    if (Empty(*handle, n, result)) return;
    Operation operation(use.Stream(), kApi);
    const float* a = operation.In(x, Vector(n, incx, "incx"), "x");
    Reduce(use, *handle, operation, n, result, [=](int64_t count) {
      double sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += std::abs(static_cast<double>(a[i * incx]));
      return sum;
    });
  });
}

cublasStatus_t cublasSnrm2_v2(cublasHandle_t handle, int n, const float* x, int incx,
                              float* result) {
  static constexpr const char* kApi = "cublasSnrm2";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    if (Empty(*handle, n, result)) return;
    Operation operation(use.Stream(), kApi);
    const float* a = operation.In(x, Vector(n, incx, "incx"), "x");
    Reduce(use, *handle, operation, n, result, [=](int64_t count) {
      double sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i * incx]) * a[i * incx];
      return std::sqrt(sum);
    });
  });
}

}  // extern "C"
