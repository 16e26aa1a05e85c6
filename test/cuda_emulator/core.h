#pragma once

/// What the emulated libraries (the CUDA runtime here, cuDNN and cuBLAS beside it) are written
/// against: device memory, streams of closures, handles, refusals and injected failures.
///
/// An emulated function goes: Call, check every argument, copy scalars and descriptors, enqueue a
/// closure that names all the memory it touches. It never runs anything itself:
///
///     cudnnStatus_t cudnnThing(cudnnHandle_t handle, const void* x, void* y) {
///       static constexpr const char* kApi = "cudnnThing";
///       const Call call(kApi);
///       if (!call) return CUDNN_STATUS_INTERNAL_ERROR;
///       if (!IsLive(handle, "cudnnHandle_t"))
///         return Refuse(kApi, "no live handle", CUDNN_STATUS_BAD_PARAM);
///       const size_t bytes = …;
///       const float* from = Translate<float>(x);
///       float* to = Translate<float>(y);
///       const bool queued =
///           Enqueue(kApi, handle->stream, {Read(x, bytes, "x"), Write(y, bytes, "y")},
///                   [=] { … from[i], to[i], on the stream's own thread … });
///       return queued ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
///     }
///
/// Every function here may be called from any host thread; none throws except std::bad_alloc.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_emulator/inside.h"

namespace cuda_emulator {

// ---- Calls and refusals ---------------------------------------------------------------------

/// First line of every emulated function that can fail; lives as long as the call. Counts the call;
/// false: this call was chosen to fail (CUDA_EMULATOR_FAIL_AT, FailCall), so return the library's
/// error for a failed execution or allocation and do nothing. A function that releases something
/// releases it all the same and then returns the error, as the real ones may do.
/// Called from inside a host function of a stream, it records a misuse and is also false.
class Call {
 public:
  explicit Call(const char* api) : begun_(Begin(api)) {}
  explicit operator bool() const { return begun_; }

 private:
  static bool Begin(const char* api);
  Inside inside_;
  bool begun_;
};

/// Records a misuse, prints `cuda emulator: API: why` on stderr (the first time for each text),
/// and makes the process exit with status 66 unless a test takes it (control.h).
void Refuse(const char* api, const std::string& why);

/// The same, and returns the code that the documentation gives for it.
template <typename Code>
Code Refuse(const char* api, const std::string& why, Code code) {
  Refuse(api, why);
  return code;
}

// ---- Device memory --------------------------------------------------------------------------

enum class Access {
  kRead,
  kWrite,      ///< written, and read where the operation reads its output (beta != 0)
  kWorkspace,  ///< filled with NaN on the stream right before the operation runs, then as kWrite
  kPin,        ///< only kept alive: for kernels, whose own accesses the sanitizers see
};

/// Memory that an operation touches: device memory (an address that cudaMalloc gave, or inside it).
struct Operand {
  const void* data = nullptr;
  size_t bytes = 0;
  Access access = Access::kRead;
  const char* name = "";  ///< the parameter, for messages
};

inline Operand Read(const void* data, size_t bytes, const char* name) {
  return {data, bytes, Access::kRead, name};
}
inline Operand Write(void* data, size_t bytes, const char* name) {
  return {data, bytes, Access::kWrite, name};
}
inline Operand Workspace(void* data, size_t bytes, const char* name) {
  return {data, bytes, Access::kWorkspace, name};
}

/// True if [data, data + bytes) lies in one live device allocation of the current device, data
/// aligned to `alignment`. Otherwise refuses. An operand of no bytes is always right.
/// Enqueue does this for all its operands; call it only to refuse something before that.
bool CheckRange(const char* api, const Operand& operand, size_t alignment = 1);

/// Whether two operands share a byte.
bool Overlap(const Operand& a, const Operand& b);

/// The address at which emulated code may touch what lies at a device address. Only closures given
/// to Enqueue may use it. Addresses outside device memory (null too) come back as null.
void* TranslateAddress(const void* device_address);

template <typename T>
T* Translate(const void* device_address) {
  return static_cast<T*>(TranslateAddress(device_address));
}

/// Whether an address is device memory, live or not; whether a range is live pinned host memory.
bool IsDeviceAddress(const void* address);
bool IsPinned(const void* data, size_t bytes);

/// Fills with bytes 0xFF: NaN in every floating-point type.
void FillWithNan(void* translated, size_t bytes);

// ---- Streams --------------------------------------------------------------------------------

/// True for a live stream of this emulation; otherwise (null, legacy, per-thread, destroyed)
/// refuses.
bool CheckStream(const char* api, cudaStream_t stream);

/// The device of a live stream, -1 for any other.
int DeviceOf(cudaStream_t stream);

/// The calling host thread's device.
int CurrentDevice();

/// Puts `work` at the end of a stream: it runs once, on the stream's own thread, after all that the
/// stream holds already. Checks the stream and all operands first, refuses and returns false
/// if one is wrong, and then queues nothing. The operands' allocations cannot be freed until it
/// ran. `work` may touch only translated operands and what it captured by value; it calls no API.
/// `alignment` is that of every operand.
bool Enqueue(const char* api, cudaStream_t stream, const std::vector<Operand>& operands,
             std::function<void()> work, size_t alignment = 1);

// ---- Handles --------------------------------------------------------------------------------

/// Keeps an object alive as a handle until ForgetHandle, counts it in the leak report under `kind`
/// (the type's name in the API), and never lets its address be used again.
void RegisterHandle(std::shared_ptr<void> object, const char* kind);

/// Whether `handle` was registered under this kind and not forgotten. Never reads *handle, so any
/// value may be asked about.
bool IsLive(const void* handle, const char* kind);

/// The end of a handle: false if it is not live (then refuse).
bool ForgetHandle(const void* handle, const char* kind);

/// Makes a handle struct: `*out = NewHandle<cudnnContext>("cudnnHandle_t")`.
template <typename T, typename... Args>
T* NewHandle(const char* kind, Args&&... args) {
  auto object = std::make_shared<T>(std::forward<Args>(args)...);
  T* handle = object.get();
  RegisterHandle(std::move(object), kind);
  return handle;
}

}  // namespace cuda_emulator
