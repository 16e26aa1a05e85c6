#pragma once

#include "backend/cuda/check.h"
#include "base/unique_handle.h"

// Owners of the libraries' handles, and a factory for each.

namespace pd::cuda {

template <typename T, auto kDestroy>
struct HandleTraits {
  using Handle = T;
  static void Destroy(T handle) { LogIfFailed(kDestroy(handle), "destroying a handle"); }
};

template <typename T, auto kDestroy>
using Handle = UniqueHandle<HandleTraits<T, kDestroy>>;

using UniqueStream = Handle<cudaStream_t, cudaStreamDestroy>;
using UniqueEvent = Handle<cudaEvent_t, cudaEventDestroy>;
using UniqueDnn = Handle<cudnnHandle_t, cudnnDestroy>;
using UniqueBlas = Handle<cublasHandle_t, cublasDestroy>;
using UniqueTensorDesc = Handle<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using UniqueFilterDesc = Handle<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using UniqueConvDesc = Handle<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;
using UniqueLrnDesc = Handle<cudnnLRNDescriptor_t, cudnnDestroyLRNDescriptor>;

/// Makes a handle by `create`, which fills one: Make<UniqueDnn>(cudnnCreate, "cudnnCreate").
template <typename Unique, typename Create>
Unique Make(Create create, const char* what) {
  typename Unique::Handle handle = nullptr;
  Check(create(&handle), what);
  return Unique(handle);
}

}  // namespace pd::cuda
