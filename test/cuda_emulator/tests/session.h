#pragma once

/// What the tests share: a fresh emulator, and its objects with an owner.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cuda_emulator/control.h"
#include "support/catch.h"

namespace cuda_emulator_test {

// Which sanitizer this build has.
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#ifdef __SANITIZE_ADDRESS__
constexpr bool kAddressSanitizer = true;
#else
constexpr bool kAddressSanitizer = false;
#endif

inline void Succeeds(cudaError_t error) {
  CHECK(std::string(cudaGetErrorName(error)) == "cudaSuccess");
}

/// Starts from nothing and demands that nothing is left: no misuse untaken, nothing alive.
class Session {
 public:
  explicit Session(const cuda_emulator::Schedule& schedule = {}) {
    cuda_emulator::Reset();
    cuda_emulator::SetSchedule(schedule);
  }
  ~Session() {
    CHECK(cuda_emulator::TakeMisuses() == std::vector<std::string>{});
    CHECK(cuda_emulator::Leaks() == std::vector<std::string>{});
    cudaGetLastError();
    cuda_emulator::Reset();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

class Stream {
 public:
  Stream() { Succeeds(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { Succeeds(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void Wait() const { Succeeds(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDisableTiming) {
    Succeeds(cudaEventCreateWithFlags(&event_, flags));
  }
  ~Event() { Succeeds(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Floats in device or pinned memory.
template <bool kPinned>
class Floats {
 public:
  explicit Floats(size_t count) : count_(count) {
    void* data = nullptr;
    Succeeds(kPinned ? cudaMallocHost(&data, bytes()) : cudaMalloc(&data, bytes()));
    data_ = static_cast<float*>(data);
  }
  ~Floats() { Succeeds(kPinned ? cudaFreeHost(data_) : cudaFree(data_)); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  float* get() const { return data_; }
  size_t bytes() const { return count_ * sizeof(float); }
  float& operator[](size_t i) const { return data_[i]; }
  void Set(float value) const { std::fill_n(data_, count_, value); }

 private:
  size_t count_;
  float* data_ = nullptr;
};

using Device = Floats<false>;
using Pinned = Floats<true>;

inline void Upload(const Device& to, const Pinned& from, cudaStream_t stream) {
  Succeeds(cudaMemcpyAsync(to.get(), from.get(), to.bytes(), cudaMemcpyHostToDevice, stream));
}

inline void Download(const Pinned& to, const Device& from, cudaStream_t stream) {
  Succeeds(cudaMemcpyAsync(to.get(), from.get(), to.bytes(), cudaMemcpyDeviceToHost, stream));
}

/// That exactly one misuse happened, with this text in it.
inline void Refused(const std::string& text) {
  const std::vector<std::string> misuses = cuda_emulator::TakeMisuses();
  REQUIRE(misuses.size() == 1);
  CHECK_THAT(misuses[0], ContainsSubstring(text));
  cudaGetLastError();
}

}  // namespace cuda_emulator_test
