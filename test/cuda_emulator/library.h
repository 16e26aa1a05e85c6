#pragma once

// What the emulated cuDNN and cuBLAS share, on top of core.h: refusals as exceptions inside a call,
// handles, and the operation that a call enqueues.
//
// Environment, read at each call, beside control.h's:
//   CUDA_EMULATOR_TF32=1             cuDNN's default math and cuBLAS's TF32 modes round to TF32
//   CUDA_EMULATOR_POOLING_TIES=last  of equal maxima the last takes the gradient of deterministic
//                                    pooling, not the first

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core.h"
#include "tensor_view.h"

namespace cuda_emulator::library {

/// Why a library call is refused; each library has its own status for it.
enum class Fault {
  kBadParam,
  kNotSupported,
  kNotInitialized,
  kInvalidValue,  // cuDNN's CUDNN_STATUS_INVALID_VALUE, which is not BAD_PARAM
  kExecution,     // memory or streams that a device would fail on; the core has reported it
};

struct Refused {
  Fault fault;
  std::string message;
};

/// Throws Refused{fault, "what problem"} unless the condition holds.
inline void Require(bool condition, Fault fault, const char* what, const char* problem) {
  if (!condition) throw Refused{fault, std::string(what).append(" ").append(problem)};
}

/// The elements of a tensor, dense, the last dimension innermost; rounded to TF32 if `tf32`.
std::vector<float> Gather(const float* data, const TensorView& view, bool tf32 = false);

/// Refuses values that are no host memory: null and device addresses.
void RequireHost(const void* pointer, const char* name);

struct LibraryHandle {
  cudaStream_t stream = nullptr;
  int device = CurrentDevice();
  std::atomic<bool> busy{false};
};

/// Holds a handle for the length of a call. Refuses a handle of another device than the current
/// one, or in use by another thread: both libraries forbid to share one without synchronisation,
/// and ThreadSanitizer is told of each use as of a write.
class HandleUse {
 public:
  HandleUse(LibraryHandle* handle, bool live);
  ~HandleUse();
  HandleUse(const HandleUse&) = delete;
  HandleUse& operator=(const HandleUse&) = delete;

  /// The handle's stream; refuses the null stream.
  cudaStream_t Stream() const;

 private:
  LibraryHandle& handle_;
};

template <class T>
HandleUse Use(T* handle) {
  return HandleUse(handle, IsLive(handle, T::kKind));
}

/// Sets a handle's stream; refuses the null stream and one of another device.
void SetHandleStream(LibraryHandle& handle, cudaStream_t stream, const char* api);

/// One operation on a stream: declare what it reads and writes, then launch. Each declaration
/// returns where the closure finds the memory.
class Operation {
 public:
  Operation(cudaStream_t stream, const char* api) : stream_(stream), api_(api) {}

  const float* In(const void* device, const TensorView& view, const char* name);
  float* Out(void* device, const TensorView& view, const char* name);
  void* OutBytes(void* device, size_t bytes, const char* name);
  void UseWorkspace(void* device, size_t bytes, const char* name);

  /// These two may be the same memory; the caller has checked that they agree.
  void AllowSame(const void* a, const void* b) { allowed_.emplace_back(a, b); }

  /// Refuses outputs that overlap other arguments, then enqueues.
  void Launch(std::function<void()> body);

 private:
  struct Argument {
    const void* device;
    std::vector<Operand> runs;
    Operand whole;
  };
  void* Declare(const void* device, const TensorView& view, Access access, const char* name);
  void CheckOverlaps() const;

  cudaStream_t stream_;
  const char* api_;
  std::vector<Argument> arguments_;
  std::vector<std::pair<const void*, const void*>> allowed_;
};

/// For what the libraries leave open: each call of a non-deterministic algorithm draws a number,
/// not 0, from a sequence that the schedule's seed starts.
uint64_t NextRandom();

/// f32 rounded to TF32's 10 bits of mantissa, to nearest, ties away from zero.
float RoundToTf32(float value);

/// Whether CUDA_EMULATOR_TF32 is 1: functions that may use TF32 then do.
bool Tf32Enabled();

}  // namespace cuda_emulator::library
