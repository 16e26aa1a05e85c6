#pragma once

// Shared by the cudnn_*.cc files: the structures behind cuDNN's opaque handles and descriptors, and
// how a function reads its arguments. Everything is f32: other types can be described, not
// computed.
//
// Written from NVIDIA's cuDNN documentation and headers; what these leave open is refused.

#include <cudnn.h>
#include <functional>

#include "library.h"
#include "tensor_view.h"

struct cudnnContext : cuda_emulator::library::LibraryHandle {
  static constexpr const char* kKind = "cudnnHandle_t";
};

struct cudnnTensorStruct {
  static constexpr const char* kKind = "cudnnTensorDescriptor_t";
  bool set = false;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cuda_emulator::library::TensorView view;
};

struct cudnnFilterStruct {
  static constexpr const char* kKind = "cudnnFilterDescriptor_t";
  bool set = false;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  cuda_emulator::library::TensorView view;  // dense
};

namespace cuda_emulator::library {

// A window that slides over one spatial axis.
struct Window {
  int64_t size = 1;
  int64_t padding = 0;
  int64_t stride = 1;
  int64_t dilation = 1;

  int64_t Span() const { return (size - 1) * dilation + 1; }
  /// Positions at which the whole window lies inside the padded axis; 0 if none.
  int64_t Outputs(int64_t input) const {
    const int64_t room = input + 2 * padding - Span();
    return room < 0 ? 0 : 1 + room / stride;
  }
};

}  // namespace cuda_emulator::library

struct cudnnConvolutionStruct {
  static constexpr const char* kKind = "cudnnConvolutionDescriptor_t";
  bool set = false;
  int spatial_rank = 0;
  cuda_emulator::library::Window
      windows[cuda_emulator::library::kMaxRank - 2];  // sizes come from the filter
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  cudnnMathType_t math_type = CUDNN_DEFAULT_MATH;
  int groups = 1;
};

struct cudnnPoolingStruct {
  static constexpr const char* kKind = "cudnnPoolingDescriptor_t";
  bool set = false;
  cudnnPoolingMode_t mode = CUDNN_POOLING_MAX;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  int spatial_rank = 0;
  cuda_emulator::library::Window windows[cuda_emulator::library::kMaxRank - 2];
};

struct cudnnActivationStruct {
  static constexpr const char* kKind = "cudnnActivationDescriptor_t";
  bool set = false;
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_RELU;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  double coefficient = 0;
  double swish_beta = 1;
};

struct cudnnLRNStruct {
  static constexpr const char* kKind = "cudnnLRNDescriptor_t";
  bool set = false;
  unsigned n = 0;
  double alpha = 0, beta = 0, k = 0;
};

struct cudnnOpTensorStruct {
  static constexpr const char* kKind = "cudnnOpTensorDescriptor_t";
  bool set = false;
  cudnnOpTensorOp_t op = CUDNN_OP_TENSOR_ADD;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
};

struct cudnnReduceTensorStruct {
  static constexpr const char* kKind = "cudnnReduceTensorDescriptor_t";
  bool set = false;
  cudnnReduceTensorOp_t op = CUDNN_REDUCE_TENSOR_ADD;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  cudnnReduceTensorIndices_t indices = CUDNN_REDUCE_TENSOR_NO_INDICES;
  cudnnIndicesType_t index_type = CUDNN_32BIT_INDICES;
};

namespace cuda_emulator::library {

cudnnStatus_t RunCudnn(const char* api, const std::function<void()>& body);
cudnnStatus_t ReleaseCudnn(const char* api, const std::function<void()>& body);

/// Runs `body`; a Refused becomes its cuDNN status and cudnnGetLastErrorString's text.
template <typename Body>
cudnnStatus_t CudnnCall(const char* api, const Body& body) {
  return RunCudnn(api, std::cref(body));
}

/// As CudnnCall, for a function that releases something: it does so even when chosen to fail.
template <typename Body>
cudnnStatus_t CudnnRelease(const char* api, const Body& body) {
  return ReleaseCudnn(api, std::cref(body));
}

/// A descriptor that lives, for a call that sets it; `name` is the parameter's.
template <class T>
T& Writable(T* descriptor, const char* name) {
  Require(IsLive(descriptor, T::kKind), Fault::kBadParam, name, "is no live descriptor");
  return *descriptor;
}

/// A descriptor that lives and was set.
template <class T>
const T& Described(const T* descriptor, const char* name) {
  Require(IsLive(descriptor, T::kKind), Fault::kBadParam, name, "is no live descriptor");
  Require(descriptor->set, Fault::kBadParam, name, "was created but never set");
  return *descriptor;
}

template <class T>
cudnnStatus_t CreateDescriptor(const char* api, T** descriptor) {
  return CudnnCall(api, [&] {
    Require(descriptor != nullptr, Fault::kBadParam, "descriptor", "is null");
    *descriptor = NewHandle<T>(T::kKind);
  });
}

template <class T>
cudnnStatus_t DestroyDescriptor(const char* api, T* descriptor) {
  return CudnnRelease(api, [&] {
    Require(ForgetHandle(descriptor, T::kKind), Fault::kBadParam, "descriptor",
            "is no live descriptor");
  });
}

/// An f32 tensor of rank 4 to `max_rank`.
TensorView FloatTensor(const cudnnTensorStruct* descriptor, const char* name, int max_rank = 5);

/// As FloatTensor, for a tensor that is written: no two indices may share an element.
TensorView FloatResult(const cudnnTensorStruct* descriptor, const char* name, int max_rank = 5);

/// The f32 that a host pointer to a scaling factor names.
float HostScalar(const void* pointer, const char* name);

inline Blend HostBlend(const void* alpha, const void* beta) {
  return {HostScalar(alpha, "alpha"), HostScalar(beta, "beta")};
}

/// An in-place call needs the same pointer and the same descriptor; anything else must not overlap.
void AllowInPlace(Operation& operation, const void* input, const TensorView& input_view,
                  const void* output, const TensorView& output_view);

template <class T>
void Put(T* pointer, T value) {
  if (pointer != nullptr) *pointer = value;
}

bool ValidDataType(cudnnDataType_t type);
bool ValidFormat(cudnnTensorFormat_t format);
inline bool ValidNan(cudnnNanPropagation_t nan) {
  return nan == CUDNN_NOT_PROPAGATE_NAN || nan == CUDNN_PROPAGATE_NAN;
}

}  // namespace cuda_emulator::library
