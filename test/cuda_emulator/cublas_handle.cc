// cuBLAS's handle, modes and status names.

#include <algorithm>
#include <cstdlib>

#include "cublas_common.h"

namespace cuda_emulator::library {
namespace {

cublasStatus_t StatusOf(Fault fault) {
  switch (fault) {
    case Fault::kBadParam:
    case Fault::kInvalidValue:
      return CUBLAS_STATUS_INVALID_VALUE;
    case Fault::kNotSupported:
      return CUBLAS_STATUS_NOT_SUPPORTED;
    case Fault::kNotInitialized:
      return CUBLAS_STATUS_NOT_INITIALIZED;
    case Fault::kExecution:
      break;
  }
  return CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t Run(const char* api, const std::function<void()>& body) {
  try {
    body();
    return CUBLAS_STATUS_SUCCESS;
  } catch (const Refused& refused) {
    if (refused.fault != Fault::kExecution) Refuse(api, refused.message);
    return StatusOf(refused.fault);
  }
}

bool KnownMath(cublasMath_t mode) {
  const int base = static_cast<int>(mode) & ~CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  return base == CUBLAS_DEFAULT_MATH || base == CUBLAS_PEDANTIC_MATH ||
         base == CUBLAS_TF32_TENSOR_OP_MATH;
}

}  // namespace

cublasStatus_t RunCublas(const char* api, const std::function<void()>& body) {
  const Call call(api);
  return call ? Run(api, body) : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t ReleaseCublas(const char* api, const std::function<void()>& body) {
  const Call call(api);
  const cublasStatus_t status = Run(api, body);
  return call ? status : CUBLAS_STATUS_EXECUTION_FAILED;
}

Scalar::Scalar(Operation& operation, const cublasContext& handle, const float* pointer,
               const char* name) {
  if (handle.pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    device_ = operation.In(pointer, Dense({1}), name);
  } else {
    RequireHost(pointer, name);
    host_ = *pointer;
  }
}

void UseWorkspace(Operation& operation, const cublasContext& handle) {
  constexpr size_t kEnd = 64 << 10;
  const size_t bytes = handle.workspace_bytes;
  const size_t head = std::min(bytes, kEnd);
  const size_t tail = std::min(bytes - head, kEnd);
  char* const workspace = static_cast<char*>(handle.workspace);
  operation.UseWorkspace(workspace, head, "the handle's workspace");
  operation.UseWorkspace(workspace + bytes - tail, tail, "the handle's workspace");
}

TensorView Matrix(int rows, int columns, int ld) { return {2, {columns, rows}, {ld, 1}}; }

TensorView Vector(int n, int increment, const char* name) {
  Require(increment > 0, Fault::kNotSupported, name, "is zero or negative, which is not emulated");
  return {1, {n}, {increment}};
}

void RequireSize(int n, const char* name) {
  Require(n >= 0, Fault::kBadParam, name, "is negative");
}

void RequireOperation(cublasOperation_t operation, const char* name) {
  Require(operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C,
          Fault::kBadParam, name, "is neither CUBLAS_OP_N, _T nor _C");
}

void RequireLeading(int ld, int rows, const char* name) {
  Require(ld >= std::max(1, rows), Fault::kBadParam, name, "is less than the matrix's rows");
}

uint64_t OrderSeed(cublasContext& handle) {
  if (handle.first_stream == nullptr) handle.first_stream = handle.stream;
  if (handle.first_stream != handle.stream) handle.several_streams = true;
  const bool fixed =
      handle.workspace != nullptr || std::getenv("CUBLAS_WORKSPACE_CONFIG") != nullptr;
  return handle.several_streams && !fixed ? NextRandom() : 0;
}

}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  return CublasCall("cublasCreate", [&] {
    RequireHost(handle, "handle");
    *handle = NewHandle<cublasContext>(cublasContext::kKind);
  });
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  return CublasRelease("cublasDestroy", [&] {
    { const HandleUse use = Use(handle); }
    ForgetHandle(handle, cublasContext::kKind);
  });
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int* version) {
  return CublasCall("cublasGetVersion", [&] {
    const HandleUse use = Use(handle);
    RequireHost(version, "version");
    *version = CUBLAS_VERSION;
  });
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  return CublasCall("cublasGetProperty", [&] {
    RequireHost(value, "value");
    Require(type == MAJOR_VERSION || type == MINOR_VERSION || type == PATCH_LEVEL,
            Fault::kInvalidValue, "type", "is no property");
    *value = type == MAJOR_VERSION   ? CUBLAS_VER_MAJOR
             : type == MINOR_VERSION ? CUBLAS_VER_MINOR
                                     : CUBLAS_VER_PATCH;
  });
}

// Also gives the library's own workspace back its place, as documented.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId) {
  static constexpr const char* kApi = "cublasSetStream";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    SetHandleStream(*handle, streamId, kApi);
    handle->workspace = nullptr;
    handle->workspace_bytes = 0;
  });
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* streamId) {
  return CublasCall("cublasGetStream", [&] {
    const HandleUse use = Use(handle);
    RequireHost(streamId, "streamId");
    *streamId = handle->stream;
  });
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace,
                                     size_t workspaceSizeInBytes) {
  static constexpr const char* kApi = "cublasSetWorkspace";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    Require(workspace != nullptr && workspaceSizeInBytes > 0, Fault::kBadParam, "workspace",
            "is null or empty");
    Require(reinterpret_cast<uintptr_t>(workspace) % 256 == 0, Fault::kBadParam, "workspace",
            "is not aligned to 256 bytes");
    if (!CheckRange(kApi, Workspace(workspace, workspaceSizeInBytes, "workspace"))) {
      throw Refused{Fault::kExecution, {}};
    }
    handle->workspace = workspace;
    handle->workspace_bytes = workspaceSizeInBytes;
  });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return CublasCall("cublasSetMathMode", [&] {
    const HandleUse use = Use(handle);
    Require(KnownMath(mode), Fault::kNotSupported, "mode", "is not emulated");
    handle->math = mode;
  });
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  return CublasCall("cublasGetMathMode", [&] {
    const HandleUse use = Use(handle);
    RequireHost(mode, "mode");
    *mode = handle->math;
  });
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  return CublasCall("cublasSetPointerMode", [&] {
    const HandleUse use = Use(handle);
    Require(mode == CUBLAS_POINTER_MODE_HOST || mode == CUBLAS_POINTER_MODE_DEVICE,
            Fault::kBadParam, "mode", "is no cublasPointerMode_t");
    handle->pointer_mode = mode;
  });
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  return CublasCall("cublasGetPointerMode", [&] {
    const HandleUse use = Use(handle);
    RequireHost(mode, "mode");
    *mode = handle->pointer_mode;
  });
}

const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown status";
}

const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

}  // extern "C"
