/// The CUDA runtime's memory, streams and events, as its documentation defines them. What a backend
/// should not use is refused; what is missing here does not link.

#include <fmt/format.h>

#include <cstring>

#include "runtime_error.h"
#include "state.h"
#include "stream.h"

using namespace cuda_emulator;  // NOLINT: this file is the emulator, in C functions

namespace cuda_emulator {
namespace {

cudaError_t Allocate(const char* api, void** pointer, size_t bytes, bool pinned) {
  if (!pointer) return RefuseWith(api, "the result is null", cudaErrorInvalidValue);
  if (bytes == 0) return RefuseWith(api, "of no bytes", cudaErrorInvalidValue);
  const int device = CurrentDevice();
  const Lock lock;
  Core& core = TheCore();
  if (!pinned && bytes + core.memory.used_bytes(device) > core.memory_limit) {
    return Result(cudaErrorMemoryAllocation);
  }
  const std::shared_ptr<Allocation> allocation = core.memory.Allocate(bytes, device, pinned);
  if (!allocation) return Result(cudaErrorMemoryAllocation);
  *pointer = reinterpret_cast<void*>(allocation->begin);
  return cudaSuccess;
}

cudaError_t FreeChecked(const char* api, void* pointer, bool pinned) {
  if (!pointer) return cudaSuccess;
  std::shared_ptr<Allocation> allocation;
  void* data = pointer;
  {
    const Lock lock;
    Core& core = TheCore();
    allocation = core.memory.Find(pointer);
    if (!allocation || allocation->pinned != pinned ||
        allocation->begin != reinterpret_cast<uintptr_t>(pointer)) {
      RefuseLocked(core, api, fmt::format("{} is not the start of a live allocation", pointer));
      return Result(cudaErrorInvalidValue);
    }
    if (allocation->uses > 0) {
      RefuseLocked(core, api, fmt::format("{} is still used by queued work", pointer));
      return Result(cudaErrorInvalidValue);
    }
    if (!pinned) data = core.memory.Translate(pointer);
  }
  DeclareWrite(data, allocation->bytes);  // freeing races with work that nobody waited for
  const Lock lock;
  if (!TheCore().memory.Free(*allocation)) {
    RefuseLocked(TheCore(), api, fmt::format("{} was written outside its bounds", pointer));
  }
  return cudaSuccess;
}

cudaError_t CreateStreamChecked(const char* api, cudaStream_t* stream, unsigned flags,
                                int priority) {
  const Call call(api);
  if (!call) return Result(cudaErrorUnknown);
  if (!stream) return RefuseWith(api, "the result is null", cudaErrorInvalidValue);
  if (flags != cudaStreamNonBlocking) {
    return RefuseWith(api, "only cudaStreamNonBlocking streams: others wait for the default stream",
                      cudaErrorInvalidValue);
  }
  *stream = CreateStream(flags, priority, CurrentDevice());
  return cudaSuccess;
}

cudaError_t CreateEvent(const char* api, cudaEvent_t* event, unsigned flags) {
  const Call call(api);
  if (!call) return Result(cudaErrorUnknown);
  if (!event) return RefuseWith(api, "the result is null", cudaErrorInvalidValue);
  if (flags & ~unsigned{cudaEventBlockingSync | cudaEventDisableTiming}) {
    return RefuseWith(api, fmt::format("flags {:#x} are not emulated", flags),
                      cudaErrorInvalidValue);
  }
  *event = NewHandle<CUevent_st>(kEventKind);
  (*event)->flags = flags;
  (*event)->device = CurrentDevice();
  return cudaSuccess;
}

bool CheckEvent(const char* api, cudaEvent_t event) {
  if (IsLive(event, kEventKind)) return true;
  Refuse(api, "the event is destroyed or never was one");
  return false;
}

std::shared_ptr<Record> CurrentRecord(cudaEvent_t event) {
  const Lock lock;
  return event->record;
}

void CountSynchronization(bool drains) {
  const Lock lock;
  ++TheCore().synchronizations;
  if (drains) ++TheCore().drains;
}

cudaError_t RefuseSynchronous(const char* api) {
  const Call call(api);
  if (!call) return Result(cudaErrorUnknown);
  return RefuseWith(api, "synchronous calls use the default stream: use the Async one",
                    cudaErrorInvalidValue);
}

}  // namespace
}  // namespace cuda_emulator

// ---- Memory ---------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  const Call call("cudaMalloc");
  if (!call) return Result(cudaErrorMemoryAllocation);
  return Allocate("cudaMalloc", devPtr, size, false);
}

cudaError_t cudaMallocHost(void** ptr, size_t size) {
  const Call call("cudaMallocHost");
  if (!call) return Result(cudaErrorMemoryAllocation);
  return Allocate("cudaMallocHost", ptr, size, true);
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned flags) {
  const Call call("cudaHostAlloc");
  if (!call) return Result(cudaErrorMemoryAllocation);
  if (flags & ~unsigned{cudaHostAllocPortable}) {
    return RefuseWith("cudaHostAlloc", fmt::format("flags {:#x} are not emulated", flags),
                      cudaErrorInvalidValue);
  }
  return Allocate("cudaHostAlloc", pHost, size, true);
}

cudaError_t cudaFree(void* devPtr) {
  const Call call("cudaFree");
  const cudaError_t error = FreeChecked("cudaFree", devPtr, false);
  return !call ? Result(cudaErrorUnknown) : error;
}

cudaError_t cudaFreeHost(void* ptr) {
  const Call call("cudaFreeHost");
  const cudaError_t error = FreeChecked("cudaFreeHost", ptr, true);
  return !call ? Result(cudaErrorUnknown) : error;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const Call call("cudaMemGetInfo");
  if (!call) return Result(cudaErrorUnknown);
  if (!free || !total) {
    return RefuseWith("cudaMemGetInfo", "a result is null", cudaErrorInvalidValue);
  }
  const int device = CurrentDevice();
  const Lock lock;
  const size_t used = TheCore().memory.used_bytes(device);
  *total = TheCore().memory_limit;
  *free = used < *total ? *total - used : 0;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  constexpr const char* kApi = "cudaPointerGetAttributes";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!attributes) return RefuseWith(kApi, "the result is null", cudaErrorInvalidValue);
  const Lock lock;
  *attributes = {};
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = cudaInvalidDeviceId;
  if (const auto allocation = TheCore().memory.Find(ptr)) {
    attributes->type = allocation->pinned ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = allocation->device;
    attributes->devicePointer = const_cast<void*>(ptr);
    attributes->hostPointer = allocation->pinned ? const_cast<void*>(ptr) : nullptr;
  } else if (TheCore().memory.InWindow(ptr)) {
    RefuseLocked(TheCore(), kApi, fmt::format("{} lies in no live allocation", ptr));
    return Result(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind) {
  return RefuseSynchronous("cudaMemcpy");
}

cudaError_t cudaMemset(void*, int, size_t) { return RefuseSynchronous("cudaMemset"); }

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  constexpr const char* kApi = "cudaMemcpyAsync";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (!to_device && !from_device) {
    return RefuseWith(kApi, "the kind must be host to device, device to host or within the device",
                      cudaErrorInvalidMemcpyDirection);
  }
  const Operand to = Write(dst, count, "dst");
  const Operand from = Read(src, count, "src");
  if (Overlap(to, from)) {
    return RefuseWith(kApi, "source and destination overlap", cudaErrorInvalidValue);
  }
  if (count == 0) {
    return CheckStream(kApi, stream) ? cudaSuccess : Result(cudaErrorInvalidResourceHandle);
  }
  Work work;
  (to_device ? work.device : work.pinned).push_back(to);
  (from_device ? work.device : work.pinned).push_back(from);
  void* const target = to_device ? TranslateAddress(dst) : dst;
  const void* const source = from_device ? TranslateAddress(src) : src;
  work.run = [=] { std::memcpy(target, source, count); };
  return Result(EnqueueWork(kApi, stream, std::move(work)));
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  constexpr const char* kApi = "cudaMemsetAsync";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (count == 0) {
    return CheckStream(kApi, stream) ? cudaSuccess : Result(cudaErrorInvalidResourceHandle);
  }
  Work work;
  work.device.push_back(Write(devPtr, count, "devPtr"));
  void* const target = TranslateAddress(devPtr);
  work.run = [=] { std::memset(target, value, count); };
  return Result(EnqueueWork(kApi, stream, std::move(work)));
}

// ---- Streams --------------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* pStream) {
  return CreateStreamChecked("cudaStreamCreate", pStream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned flags) {
  return CreateStreamChecked("cudaStreamCreateWithFlags", pStream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned flags, int priority) {
  return CreateStreamChecked("cudaStreamCreateWithPriority", pStream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Call call("cudaStreamDestroy");
  if (!CheckStream("cudaStreamDestroy", stream)) return Result(cudaErrorInvalidResourceHandle);
  ForgetHandle(stream, kStreamKind);
  DestroyStream(stream);
  return !call ? Result(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  constexpr const char* kApi = "cudaStreamSynchronize";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!CheckStream(kApi, stream)) return Result(cudaErrorInvalidResourceHandle);
  CountSynchronization(true);
  const std::shared_ptr<Record> record = PushRecord(stream);
  WaitFor(record->target);
  Acquire(record.get());
  return Result(StickyError());
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  constexpr const char* kApi = "cudaStreamQuery";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!CheckStream(kApi, stream)) return Result(cudaErrorInvalidResourceHandle);
  if (const cudaError_t failed = StickyError(); failed != cudaSuccess) return Result(failed);
  Target last = {stream, 0};
  {
    const Lock lock;
    if (stream->enqueued == 0) return cudaSuccess;
    last.position = stream->enqueued - 1;
  }
  if (!Query(last)) return Result(cudaErrorNotReady);
  Acquire(stream);
  return Result(StickyError());
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  constexpr const char* kApi = "cudaStreamWaitEvent";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!CheckStream(kApi, stream) || !CheckEvent(kApi, event)) {
    return Result(cudaErrorInvalidResourceHandle);
  }
  if (flags != cudaEventWaitDefault) {
    return RefuseWith(kApi, "flags other than 0 are not emulated", cudaErrorInvalidValue);
  }
  std::shared_ptr<Record> record = CurrentRecord(event);
  if (!record) return cudaSuccess;  // never recorded: no wait, as documented
  auto operation = std::make_unique<Operation>();
  operation->kind = Operation::Kind::kWait;
  operation->record = std::move(record);
  Push(stream, std::move(operation));
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  constexpr const char* kApi = "cudaLaunchHostFunc";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!fn) return RefuseWith(kApi, "the function is null", cudaErrorInvalidValue);
  Work work;
  work.kind = Operation::Kind::kHostFunction;
  work.run = [=] { fn(userData); };
  return Result(EnqueueWork(kApi, stream, std::move(work)));
}

cudaError_t cudaDeviceSynchronize() {
  const Call call("cudaDeviceSynchronize");
  if (!call) return Result(cudaErrorUnknown);
  CountSynchronization(true);
  SynchronizeAll(CurrentDevice());
  return Result(StickyError());
}

// ---- Events ---------------------------------------------------------------------------------

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return CreateEvent("cudaEventCreate", event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return CreateEvent("cudaEventCreateWithFlags", event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Call call("cudaEventDestroy");
  if (!CheckEvent("cudaEventDestroy", event)) return Result(cudaErrorInvalidResourceHandle);
  ForgetHandle(event, kEventKind);
  return !call ? Result(cudaErrorUnknown) : cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  constexpr const char* kApi = "cudaEventRecord";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!CheckStream(kApi, stream) || !CheckEvent(kApi, event)) {
    return Result(cudaErrorInvalidResourceHandle);
  }
  if (event->device != stream->device) {
    return RefuseWith(kApi, "event and stream belong to different devices",
                      cudaErrorInvalidResourceHandle);
  }
  std::shared_ptr<Record> record = PushRecord(stream);
  const Lock lock;
  event->record = std::move(record);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  constexpr const char* kApi = "cudaEventQuery";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!CheckEvent(kApi, event)) return Result(cudaErrorInvalidResourceHandle);
  const std::shared_ptr<Record> record = CurrentRecord(event);
  if (!record) return cudaSuccess;
  if (!Query(record->target)) return Result(cudaErrorNotReady);
  Acquire(record.get());
  return Result(StickyError());
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  constexpr const char* kApi = "cudaEventSynchronize";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!CheckEvent(kApi, event)) return Result(cudaErrorInvalidResourceHandle);
  CountSynchronization(false);
  const std::shared_ptr<Record> record = CurrentRecord(event);
  if (!record) return cudaSuccess;
  WaitFor(record->target);
  Acquire(record.get());
  return Result(StickyError());
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  constexpr const char* kApi = "cudaEventElapsedTime";
  const Call call(kApi);
  if (!call) return Result(cudaErrorUnknown);
  if (!ms) return RefuseWith(kApi, "the result is null", cudaErrorInvalidValue);
  if (!CheckEvent(kApi, start) || !CheckEvent(kApi, end)) {
    return Result(cudaErrorInvalidResourceHandle);
  }
  if ((start->flags | end->flags) & cudaEventDisableTiming) {
    return RefuseWith(kApi, "an event was made without timing", cudaErrorInvalidResourceHandle);
  }
  const Lock lock;
  if (!start->record || !end->record) {
    RefuseLocked(TheCore(), kApi, "an event was never recorded");
    return Result(cudaErrorInvalidResourceHandle);
  }
  if (!Done(start->record->target) || !Done(end->record->target)) return Result(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(end->record->time - start->record->time).count();
  return cudaSuccess;
}
