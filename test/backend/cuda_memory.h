#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "support/catch.h"

namespace pd::test {

/// Values on the device, at an address that is a multiple of 4 only, with a guard on either side.
template <typename T>
class CudaArray {
 public:
  CudaArray(T* base, size_t count) : base_(base, &Free), count_(count) {}

  T* data() const { return base_.get() + 1; }
  operator T*() const { return data(); }  // NOLINT: passed to launchers as what it is
  T* base() const { return base_.get(); }
  size_t count() const { return count_; }

 private:
  static void Free(T* base) { cudaFree(base); }
  std::unique_ptr<T, void (*)(T*)> base_;
  size_t count_;
};

/// A stream, and what moves values between the host and the device on it.
class CudaMemory {
 public:
  CudaMemory() {
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() { cudaStreamDestroy(stream_); }

  cudaStream_t stream() const { return stream_; }

  template <typename T>
  CudaArray<T> Put(const std::vector<T>& values) {
    auto array = Room<T>(values.size());
    if (!values.empty()) Move(array.data(), values.data(), values.size(), cudaMemcpyHostToDevice);
    return array;
  }
  /// Full of bytes 0xFF, guards included.
  template <typename T>
  CudaArray<T> Room(size_t count) {
    void* base = nullptr;
    const size_t bytes = (count + 2) * sizeof(T);
    REQUIRE(cudaMalloc(&base, bytes) == cudaSuccess);
    CudaArray<T> array(static_cast<T*>(base), count);
    REQUIRE(cudaMemsetAsync(base, 0xFF, bytes, stream_) == cudaSuccess);
    // Freed only when nothing is under way.
    REQUIRE(cudaStreamSynchronize(stream_) == cudaSuccess);
    return array;
  }
  /// The values, once the stream is through. Fails where a guard was overwritten.
  template <typename T>
  std::vector<T> Get(const CudaArray<T>& array) {
    std::vector<T> all = Read(array.base(), array.count() + 2);
    T guard;
    std::memset(&guard, 0xFF, sizeof(T));
    REQUIRE(std::memcmp(&all.front(), &guard, sizeof(T)) == 0);
    REQUIRE(std::memcmp(&all.back(), &guard, sizeof(T)) == 0);
    return {all.begin() + 1, all.end() - 1};
  }
  template <typename T>
  std::vector<T> Read(const T* data, size_t count) {
    std::vector<T> values(count);
    Move(values.data(), data, count, cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  template <typename T>
  void Move(T* to, const T* from, size_t count, cudaMemcpyKind kind) {
    void* staging = nullptr;
    const size_t bytes = count * sizeof(T);
    REQUIRE(cudaMallocHost(&staging, bytes) == cudaSuccess);
    const bool up = kind == cudaMemcpyHostToDevice;
    if (up) std::memcpy(staging, from, bytes);
    REQUIRE(cudaMemcpyAsync(up ? to : staging, up ? staging : from, bytes, kind, stream_) ==
            cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream_) == cudaSuccess);
    if (!up) std::memcpy(to, staging, bytes);
    REQUIRE(cudaFreeHost(staging) == cudaSuccess);
  }

  cudaStream_t stream_ = nullptr;
};

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Between shift − scale and shift + scale.
inline std::vector<float> RandomFloats(size_t count, unsigned seed, float scale = 1,
                                       float shift = 0) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = shift + scale * (static_cast<float>(engine() >> 8) * 0x1p-23F - 1);
  }
  return values;
}

/// Every element within `bound` of the largest one expected.
inline void CheckNear(const std::vector<float>& actual, const std::vector<double>& expected,
                      double bound) {
  REQUIRE(actual.size() == expected.size());
  double largest = 1e-30;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::abs(static_cast<double>(actual[i]) - expected[i]) <= bound * largest) continue;
    INFO("element " << i << ": " << actual[i] << ", expected " << expected[i]);
    FAIL("too far");
  }
}

}  // namespace pd::test
