#pragma once

// Shared by the cublas_*.cc files: the handle, and how a function reads its arguments. Matrices are
// column-major: element (i, j) lies at i + j · ld. Everything is f32.
//
// Written from NVIDIA's cuBLAS documentation and headers; what these leave open is refused.

#include <cublas_v2.h>
#include <functional>

#include "library.h"
#include "tensor_view.h"

struct cublasContext : cuda_emulator::library::LibraryHandle {
  static constexpr const char* kKind = "cublasHandle_t";
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  void* workspace = nullptr;  // the user's; null: the library's own pool
  size_t workspace_bytes = 0;
  cudaStream_t first_stream = nullptr;  // of the operations so far
  bool several_streams = false;
};

namespace cuda_emulator::library {

cublasStatus_t RunCublas(const char* api, const std::function<void()>& body);
cublasStatus_t ReleaseCublas(const char* api, const std::function<void()>& body);

/// Runs `body`; a Refused becomes its cuBLAS status.
template <typename Body>
cublasStatus_t CublasCall(const char* api, const Body& body) {
  return RunCublas(api, std::cref(body));
}

/// As CublasCall, for a function that releases something: it does so even when chosen to fail.
template <typename Body>
cublasStatus_t CublasRelease(const char* api, const Body& body) {
  return ReleaseCublas(api, std::cref(body));
}

/// alpha or beta: read at the call from host memory, or on the stream from device memory, as the
/// handle's pointer mode says.
class Scalar {
 public:
  Scalar(Operation& operation, const cublasContext& handle, const float* pointer, const char* name);
  float Value() const { return device_ == nullptr ? host_ : *device_; }

 private:
  float host_ = 0;
  const float* device_ = nullptr;
};

/// Declares the handle's workspace as used. What of it a product uses is the library's choice: here
/// up to 64 KiB at either end, since a process may fill it thousands of times.
void UseWorkspace(Operation& operation, const cublasContext& handle);

/// A matrix of rows × columns as {columns, rows}: the rows are innermost.
TensorView Matrix(int rows, int columns, int ld);

/// A vector of n elements, `increment` apart (positive: others are not emulated).
TensorView Vector(int n, int increment, const char* name);

void RequireSize(int n, const char* name);
void RequireOperation(cublasOperation_t operation, const char* name);
void RequireLeading(int ld, int rows, const char* name);

/// cuBLAS gives the same bits run after run unless one handle's operations run on several streams
/// and share its own workspace. 0, or a seed for this call's order of summation.
uint64_t OrderSeed(cublasContext& handle);

}  // namespace cuda_emulator::library
