/// The CUDA runtime's devices and errors. The device described here is made up: compute capability
/// 9.0 with the limits of the programming guide's table for it, and few multiprocessors, so that
/// grids sized by them stay small on a CPU.

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "runtime_error.h"
#include "state.h"

using namespace cuda_emulator;  // NOLINT: this file is the emulator, in C functions

namespace cuda_emulator {
namespace {

constexpr int kMajor = 9;
constexpr int kMinor = 0;
constexpr int kMultiprocessors = 4;

cudaError_t& LastError() {
  static thread_local cudaError_t last = cudaSuccess;
  return last;
}

int& ThreadDevice() {
  static thread_local int device = 0;
  return device;
}

int DeviceCount() {
  const Lock lock;
  return TheCore().devices;
}

cudaError_t CheckDevice(const char* api, int device) {
  const int count = DeviceCount();
  if (device >= 0 && device < count) return cudaSuccess;
  return RefuseWith(api, fmt::format("device {} of {}", device, count), cudaErrorInvalidDevice);
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText* FindError(cudaError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

cudaDeviceProp Properties(int device) {
  cudaDeviceProp properties = {};
  std::snprintf(properties.name, sizeof properties.name, "CUDA emulator %d", device);
  std::memset(properties.uuid.bytes, device + 1, sizeof properties.uuid.bytes);
  {
    const Lock lock;
    properties.totalGlobalMem = TheCore().memory_limit;
  }
  properties.sharedMemPerBlock = 48 << 10;
  properties.regsPerBlock = 65536;
  properties.warpSize = 32;
  properties.memPitch = 2147483647;
  properties.maxThreadsPerBlock = 1024;
  properties.maxThreadsDim[0] = properties.maxThreadsDim[1] = 1024;
  properties.maxThreadsDim[2] = 64;
  properties.maxGridSize[0] = 2147483647;
  properties.maxGridSize[1] = properties.maxGridSize[2] = 65535;
  properties.totalConstMem = 64 << 10;
  properties.major = kMajor;
  properties.minor = kMinor;
  properties.textureAlignment = 512;
  properties.texturePitchAlignment = 32;
  properties.multiProcessorCount = kMultiprocessors;
  properties.concurrentKernels = 1;
  properties.pciBusID = device + 1;
  properties.asyncEngineCount = 2;
  properties.unifiedAddressing = 1;
  properties.memoryBusWidth = 4096;
  properties.l2CacheSize = 1 << 20;
  properties.maxThreadsPerMultiProcessor = 2048;
  properties.maxBlocksPerMultiProcessor = 32;
  properties.streamPrioritiesSupported = 1;
  properties.regsPerMultiprocessor = 65536;
  properties.sharedMemPerMultiprocessor = 228 << 10;
  properties.sharedMemPerBlockOptin = 48 << 10;
  return properties;
}

// The attributes that are a field of the properties; false: not emulated.
bool Attribute(const cudaDeviceProp& p, cudaDeviceAttr attribute, int* value) {
  const std::pair<cudaDeviceAttr, int> values[] = {
      {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
      {cudaDevAttrMaxBlockDimX, p.maxThreadsDim[0]},
      {cudaDevAttrMaxBlockDimY, p.maxThreadsDim[1]},
      {cudaDevAttrMaxBlockDimZ, p.maxThreadsDim[2]},
      {cudaDevAttrMaxGridDimX, p.maxGridSize[0]},
      {cudaDevAttrMaxGridDimY, p.maxGridSize[1]},
      {cudaDevAttrMaxGridDimZ, p.maxGridSize[2]},
      {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(p.sharedMemPerBlock)},
      {cudaDevAttrWarpSize, p.warpSize},
      {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
      {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
      {cudaDevAttrL2CacheSize, p.l2CacheSize},
      {cudaDevAttrAsyncEngineCount, p.asyncEngineCount},
      {cudaDevAttrConcurrentKernels, p.concurrentKernels},
      {cudaDevAttrUnifiedAddressing, p.unifiedAddressing},
      {cudaDevAttrIntegrated, p.integrated},
      {cudaDevAttrPciBusId, p.pciBusID},
      {cudaDevAttrPciDeviceId, p.pciDeviceID},
      {cudaDevAttrPciDomainId, p.pciDomainID},
      {cudaDevAttrComputeCapabilityMajor, p.major},
      {cudaDevAttrComputeCapabilityMinor, p.minor},
      {cudaDevAttrStreamPrioritiesSupported, p.streamPrioritiesSupported},
  };
  for (const auto& [known, number] : values) {
    if (known != attribute) continue;
    *value = number;
    return true;
  }
  return false;
}

}  // namespace

cudaError_t Result(cudaError_t error) {
  if (error != cudaSuccess) LastError() = error;
  return error;
}

cudaError_t RefuseWith(const char* api, const std::string& why, cudaError_t error) {
  Refuse(api, why);
  return Result(error);
}

cudaError_t StickyError() {
  const Lock lock;
  return TheCore().sticky;
}

int CurrentDevice() { return ThreadDevice(); }

void SetDeviceCount(int count) {
  const Lock lock;
  TheCore().devices = count;
}

}  // namespace cuda_emulator

cudaError_t cudaGetDeviceCount(int* count) {
  const Call call("cudaGetDeviceCount");
  if (!call) return Result(cudaErrorUnknown);
  if (!count) return RefuseWith("cudaGetDeviceCount", "the result is null", cudaErrorInvalidValue);
  *count = DeviceCount();
  return *count == 0 ? Result(cudaErrorNoDevice) : cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  const Call call("cudaSetDevice");
  if (!call) return Result(cudaErrorUnknown);
  if (CheckDevice("cudaSetDevice", device) != cudaSuccess) return cudaErrorInvalidDevice;
  ThreadDevice() = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  const Call call("cudaGetDevice");
  if (!call) return Result(cudaErrorUnknown);
  if (!device) return RefuseWith("cudaGetDevice", "the result is null", cudaErrorInvalidValue);
  *device = ThreadDevice();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  constexpr const char* kApi = "cudaGetDeviceProperties";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!prop) return RefuseWith(kApi, "the result is null", cudaErrorInvalidValue);
  if (CheckDevice(kApi, device) != cudaSuccess) return cudaErrorInvalidDevice;
  *prop = Properties(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  constexpr const char* kApi = "cudaDeviceGetAttribute";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!value) return RefuseWith(kApi, "the result is null", cudaErrorInvalidValue);
  if (CheckDevice(kApi, device) != cudaSuccess) return cudaErrorInvalidDevice;
  if (!Attribute(Properties(device), attr, value)) {
    return RefuseWith(kApi, fmt::format("attribute {} is not emulated", static_cast<int>(attr)),
                      cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  constexpr const char* kApi = "cudaDeviceGetPCIBusId";
  constexpr int kLength = 13;  // domain:bus:device.function and the final null
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (CheckDevice(kApi, device) != cudaSuccess) return cudaErrorInvalidDevice;
  if (!pciBusId || len < kLength) {
    return RefuseWith(kApi, "no room for 13 characters", cudaErrorInvalidValue);
  }
  std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02X:00.0", (device + 1) & 0xFF);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  const Call call("cudaDeviceGetStreamPriorityRange");
  if (!call) return Result(cudaErrorUnknown);
  if (leastPriority) *leastPriority = 0;
  if (greatestPriority) *greatestPriority = -5;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  constexpr const char* kApi = "cudaRuntimeGetVersion";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!runtimeVersion) return RefuseWith(kApi, "the result is null", cudaErrorInvalidValue);
  *runtimeVersion = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  constexpr const char* kApi = "cudaDriverGetVersion";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!driverVersion) return RefuseWith(kApi, "the result is null", cudaErrorInvalidValue);
  *driverVersion = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t sticky = StickyError();
  const cudaError_t last = std::exchange(LastError(), cudaSuccess);
  return sticky != cudaSuccess ? sticky : last;
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t sticky = StickyError();
  return sticky != cudaSuccess ? sticky : LastError();
}

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* entry = FindError(error);
  return entry ? entry->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* entry = FindError(error);
  return entry ? entry->text : "unrecognized error code";
}
