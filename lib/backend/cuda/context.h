#pragma once

#include <cstddef>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/handles.h"

namespace pd::cuda {

/// Memory of the device that is current on the calling thread, not initialised. Each call is one
/// cudaMalloc: 256-byte aligned. 0 bytes give an empty Buffer. Freeing waits for the device.
/// Throws kDevice, with the bytes wanted and free, when there is not enough. For what is soon
/// freed; what stays comes from Context::Allocate.
Buffer AllocateDevice(size_t bytes);
/// Pinned memory of the host, zeroed. As above.
Buffer AllocatePinned(size_t bytes);

/// What operations run on: one a backend.
class Context {
 public:
  /// Makes the device current on the calling thread and takes what a worker needs.
  Context(int device, const BackendOptions& options);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  /// Waits for all queued work: what the streams use is freed after it.
  ~Context();

  /// AllocateDevice, counted.
  Buffer Allocate(size_t bytes) const;
  /// That Allocate has given, by all calls.
  size_t allocated_bytes() const { return allocated_bytes_; }

  int device() const { return device_; }
  /// f32 products may be rounded to TF32's 10 bits.
  bool tf32() const { return tf32_; }
  /// What the workspace of one operation may take.
  size_t workspace_limit_bytes() const { return workspace_limit_bytes_; }

  cudaStream_t stream(Queue queue) const { return streams_[static_cast<size_t>(queue)].get(); }
  cudaStream_t compute() const { return stream(Queue::kCompute); }
  cudnnHandle_t dnn() const { return dnn_.get(); }     ///< On the compute stream.
  cublasHandle_t blas() const { return blas_.get(); }  ///< On the compute stream.

 private:
  int device_ = 0;
  bool tf32_ = false;
  size_t workspace_limit_bytes_ = 0;
  mutable size_t allocated_bytes_ = 0;
  UniqueStream streams_[3];  // by Queue
  Buffer blas_workspace_;
  UniqueDnn dnn_;
  UniqueBlas blas_;
};

/// Of the runtime and the libraries that are loaded; needs no device.
std::string Libraries();

}  // namespace pd::cuda
