#include "backend/cuda/context.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"

namespace pd::cuda {
namespace {

/// A workspace of its own makes cuBLAS choose the same kernels, and so the same sums, in every run.
/// Source: cuBLAS documentation, the sizes that cublasSetWorkspace recommends.
size_t BlasWorkspaceBytes(int device) {
  int major = 0;
  PD_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return size_t{major >= 9 ? 32U : 4U} << 20;
}

// Work may still be queued on what is freed: a copy of the last minibatch, a test that stops early.
void FreeDevice(void* data, size_t /*bytes*/) {
  PD_CUDA_LOG(cudaDeviceSynchronize());
  PD_CUDA_LOG(cudaFree(data));
}
void FreePinned(void* data, size_t /*bytes*/) {
  PD_CUDA_LOG(cudaDeviceSynchronize());
  PD_CUDA_LOG(cudaFreeHost(data));
}

UniqueStream MakeStream() {
  return Make<UniqueStream>(
      [](cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking); },
      "cudaStreamCreateWithFlags");
}

}  // namespace

Buffer AllocateDevice(size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation || status == cudaErrorInvalidValue) {
    static_cast<void>(cudaGetLastError());
    size_t free = 0;
    size_t total = 0;
    PD_CUDA(cudaMemGetInfo(&free, &total));
    Throw(ErrorCode::kDevice, "cannot allocate {} bytes of GPU memory: {} of {} bytes are free",
          bytes, free, total);
  }
  Check(status, "cudaMalloc");
  return {data, bytes, FreeDevice};
}

Buffer AllocatePinned(size_t bytes) {
  if (bytes == 0) return {};
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation || status == cudaErrorInvalidValue) {
    static_cast<void>(cudaGetLastError());
    Throw(ErrorCode::kDevice, "cannot allocate {} bytes of pinned memory", bytes);
  }
  Check(status, "cudaHostAlloc");
  std::memset(data, 0, bytes);
  return {data, bytes, FreePinned};
}

Context::Context(int device, const BackendOptions& options)
    : device_(device), tf32_(options.tf32), workspace_limit_bytes_(options.workspace_limit_bytes) {
  PD_CUDA(cudaSetDevice(device));
  for (UniqueStream& stream : streams_) stream = MakeStream();
  dnn_ = Make<UniqueDnn>(cudnnCreate, "cudnnCreate");
  PD_CUDNN(cudnnSetStream(dnn_.get(), compute()));
  blas_ = Make<UniqueBlas>(cublasCreate, "cublasCreate");
  // In this order: cublasSetStream takes the workspace away again.
  PD_CUBLAS(cublasSetStream(blas_.get(), compute()));
  blas_workspace_ = Allocate(BlasWorkspaceBytes(device));
  PD_CUBLAS(cublasSetWorkspace(blas_.get(), blas_workspace_.data(), blas_workspace_.bytes()));
  PD_CUBLAS(
      cublasSetMathMode(blas_.get(), tf32_ ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH));
}

Buffer Context::Allocate(size_t bytes) const {
  Buffer buffer = AllocateDevice(bytes);
  allocated_bytes_ += bytes;
  return buffer;
}

Context::~Context() {
  for (const UniqueStream& stream : streams_) PD_CUDA_LOG(cudaStreamSynchronize(stream.get()));
}

std::string Libraries() {
  int runtime = 0;
  PD_CUDA(cudaRuntimeGetVersion(&runtime));
  const size_t dnn = cudnnGetVersion();
  int blas[3] = {};
  PD_CUBLAS(cublasGetProperty(MAJOR_VERSION, &blas[0]));
  PD_CUBLAS(cublasGetProperty(MINOR_VERSION, &blas[1]));
  PD_CUBLAS(cublasGetProperty(PATCH_LEVEL, &blas[2]));
  return fmt::format("CUDA {}.{}, cuDNN {}.{}.{}, cuBLAS {}.{}.{}", runtime / 1000,
                     runtime % 1000 / 10, dnn / 10000, dnn / 100 % 100, dnn % 100, blas[0], blas[1],
                     blas[2]);
}

}  // namespace pd::cuda
