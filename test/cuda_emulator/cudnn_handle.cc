// cuDNN's handle, version and errors.

#include <cstdio>
#include <cstring>

#include "cudnn_common.h"

namespace cuda_emulator::library {
namespace {

std::string& LastError() {
  thread_local std::string message;
  return message;
}

cudnnStatus_t StatusOf(Fault fault) {
  switch (fault) {
    case Fault::kBadParam:
      return CUDNN_STATUS_BAD_PARAM;
    case Fault::kNotSupported:
      return CUDNN_STATUS_NOT_SUPPORTED;
    case Fault::kNotInitialized:
      return CUDNN_STATUS_NOT_INITIALIZED;
    case Fault::kInvalidValue:
      return CUDNN_STATUS_INVALID_VALUE;
    case Fault::kExecution:
      break;
  }
  return CUDNN_STATUS_EXECUTION_FAILED;
}

cudnnStatus_t Run(const char* api, const std::function<void()>& body) {
  try {
    body();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refused& refused) {
    LastError() = std::string(api) + ": " + refused.message;
    if (refused.fault != Fault::kExecution) Refuse(api, refused.message);
    return StatusOf(refused.fault);
  }
}

cudnnStatus_t Injected(const char* api) {
  LastError() = std::string(api) + ": chosen to fail";
  return CUDNN_STATUS_EXECUTION_FAILED;
}

}  // namespace

cudnnStatus_t RunCudnn(const char* api, const std::function<void()>& body) {
  const Call call(api);
  return call ? Run(api, body) : Injected(api);
}

cudnnStatus_t ReleaseCudnn(const char* api, const std::function<void()>& body) {
  const Call call(api);
  const cudnnStatus_t status = Run(api, body);
  return call ? status : Injected(api);
}

float HostScalar(const void* pointer, const char* name) {
  RequireHost(pointer, name);
  float value = 0;
  std::memcpy(&value, pointer, sizeof value);
  return value;
}

}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }

size_t cudnnGetMaxDeviceVersion() { return CUDNN_MAX_DEVICE_VERSION; }

size_t cudnnGetCudartVersion() { return CUDART_VERSION; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_INVALID_VALUE:
      return "CUDNN_STATUS_INVALID_VALUE";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
      return "CUDNN_UNKNOWN_STATUS";
  }
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (message == nullptr || max_size == 0) return;
  std::snprintf(message, max_size, "%s", LastError().c_str());
  LastError().clear();
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  return CudnnCall(__func__, [&] {
    RequireHost(value, "value");
    switch (type) {
      case MAJOR_VERSION:
        *value = CUDNN_MAJOR;
        return;
      case MINOR_VERSION:
        *value = CUDNN_MINOR;
        return;
      case PATCH_LEVEL:
        *value = CUDNN_PATCHLEVEL;
        return;
    }
    throw Refused{Fault::kInvalidValue, "type is no libraryPropertyType"};
  });
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return CudnnCall(__func__, [&] {
    RequireHost(handle, "handle");
    *handle = NewHandle<cudnnContext>(cudnnContext::kKind);
  });
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return CudnnRelease(__func__, [&] {
    { const HandleUse use = Use(handle); }
    ForgetHandle(handle, cudnnContext::kKind);
  });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId) {
  static constexpr const char* kApi = "cudnnSetStream";
  return CudnnCall(kApi, [&] {
    const HandleUse use = Use(handle);
    SetHandleStream(*handle, streamId, kApi);
  });
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* streamId) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    RequireHost(streamId, "streamId");
    *streamId = handle->stream;
  });
}

}  // extern "C"
