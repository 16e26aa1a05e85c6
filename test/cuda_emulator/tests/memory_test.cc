#include <cmath>
#include <cstdint>
#include <cstring>

#include "session.h"

namespace cuda_emulator_test {
namespace {

TEST_CASE("what cudaMalloc and cudaMallocHost give is NaN until written") {
  const Session session;
  const Stream stream;
  const Device device(1000);
  const Pinned pinned(1000);
  CHECK(std::isnan(pinned[0]));
  CHECK(std::isnan(pinned[999]));
  pinned.Set(1);
  Download(pinned, device, stream);
  stream.Wait();
  CHECK(std::isnan(pinned[0]));
  CHECK(std::isnan(pinned[999]));
}

TEST_CASE("data goes to the device, within it and back") {
  const Session session;
  const Stream stream;
  const Device a(300), b(300);
  const Pinned from(300), to(300);
  for (size_t i = 0; i < 300; ++i) from[i] = static_cast<float>(i);
  Upload(a, from, stream);
  Succeeds(cudaMemcpyAsync(b.get(), a.get(), a.bytes(), cudaMemcpyDeviceToDevice, stream));
  Succeeds(cudaMemsetAsync(b.get() + 1, 0, sizeof(float), stream));
  Download(to, b, stream);
  stream.Wait();
  CHECK(to[0] == 0);
  CHECK(to[1] == 0);
  CHECK(to[2] == 2);
  CHECK(to[299] == 299);
}

TEST_CASE("allocations are aligned to 256 bytes and their addresses never come back") {
  const Session session;
  uintptr_t last = 0;
  for (const size_t bytes : {1, 255, 256, 257, 4095, 4096, 4097, 1 << 20}) {
    void* pointer = nullptr;
    Succeeds(cudaMalloc(&pointer, bytes));
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    CHECK(address % 256 == 0);
    CHECK(address > last);
    last = address + bytes;
    Succeeds(cudaFree(pointer));
  }
}

TEST_CASE("a range past its allocation is refused") {
  const Session session;
  const Stream stream;
  const Device small(10), next(10);
  const Pinned pinned(100);
  CHECK(cudaMemcpyAsync(small.get(), pinned.get(), 11 * sizeof(float), cudaMemcpyHostToDevice,
                        stream) == cudaErrorInvalidValue);
  Refused("cudaMemcpyAsync: dst");
  // Also one that reaches into the next live allocation.
  const auto gap = static_cast<size_t>(reinterpret_cast<char*>(next.get()) -
                                       reinterpret_cast<char*>(small.get()));
  CHECK(cudaMemsetAsync(small.get(), 0, gap + 4, stream) == cudaErrorInvalidValue);
  Refused("runs past the end");
  CHECK(cudaMemcpyAsync(pinned.get() + 95, small.get(), 10 * sizeof(float), cudaMemcpyDeviceToHost,
                        stream) == cudaErrorInvalidValue);
  Refused("not inside one live pinned allocation");
}

TEST_CASE("freed memory is refused, and freed twice") {
  const Session session;
  const Stream stream;
  void* pointer = nullptr;
  Succeeds(cudaMalloc(&pointer, 100));
  Succeeds(cudaFree(pointer));
  CHECK(cudaMemsetAsync(pointer, 0, 4, stream) == cudaErrorInvalidValue);
  Refused("no live device allocation");
  CHECK(cudaFree(pointer) == cudaErrorInvalidValue);
  Refused("not the start of a live allocation");
  Succeeds(cudaFree(nullptr));
}

TEST_CASE("memory that queued work names cannot be freed") {
  const Session session(
      {.mode = cuda_emulator::Mode::kScheduled, .policy = cuda_emulator::Policy::kLazy});
  const Stream stream;
  const Device device(10);
  const Pinned pinned(10);
  Upload(device, pinned, stream);
  CHECK(cudaFree(device.get()) == cudaErrorInvalidValue);
  Refused("still used by queued work");
  CHECK(cudaFreeHost(pinned.get()) == cudaErrorInvalidValue);
  Refused("still used by queued work");
  stream.Wait();
}

TEST_CASE("asynchronous copies want pinned memory and the exact kind") {
  const Session session;
  const Stream stream;
  const Device device(10), other(10);
  const Pinned pinned(10);
  std::vector<float> pageable(10);
  CHECK(cudaMemcpyAsync(device.get(), pageable.data(), 40, cudaMemcpyHostToDevice, stream) ==
        cudaErrorInvalidValue);
  Refused("pinned");
  CHECK(cudaMemcpyAsync(device.get(), pinned.get(), 40, cudaMemcpyDefault, stream) ==
        cudaErrorInvalidMemcpyDirection);
  Refused("kind");
  CHECK(cudaMemcpyAsync(device.get(), pinned.get(), 40, cudaMemcpyDeviceToDevice, stream) ==
        cudaErrorInvalidValue);
  Refused("is no device memory");
  CHECK(cudaMemcpyAsync(device.get(), other.get(), 40, cudaMemcpyHostToDevice, stream) ==
        cudaErrorInvalidValue);
  Refused("pinned");
  CHECK(cudaMemcpyAsync(device.get() + 1, device.get(), 20, cudaMemcpyDeviceToDevice, stream) ==
        cudaErrorInvalidValue);
  Refused("overlap");
}

TEST_CASE("the default stream and synchronous copies are refused") {
  const Session session;
  const Device device(10);
  const Pinned pinned(10);
  CHECK(cudaMemcpyAsync(device.get(), pinned.get(), 40, cudaMemcpyHostToDevice, nullptr) ==
        cudaErrorInvalidResourceHandle);
  Refused("default stream");
  CHECK(cudaStreamSynchronize(cudaStreamLegacy) == cudaErrorInvalidResourceHandle);
  Refused("default stream");
  CHECK(cudaMemcpy(device.get(), pinned.get(), 40, cudaMemcpyHostToDevice) ==
        cudaErrorInvalidValue);
  Refused("synchronous");
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream) == cudaErrorInvalidValue);
  Refused("cudaStreamNonBlocking");
}

TEST_CASE("device memory ends at its limit, and cudaMemGetInfo tells it") {
  const Session session;
  cuda_emulator::SetMemoryLimit(1000);
  const Device device(150);
  size_t free = 0, total = 0;
  Succeeds(cudaMemGetInfo(&free, &total));
  CHECK(free == 400);
  CHECK(total == 1000);
  void* pointer = nullptr;
  CHECK(cudaMalloc(&pointer, 401) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("memory of one device is refused on another") {
  const Session session;
  cuda_emulator::SetDeviceCount(2);
  const Device zero(10);
  Succeeds(cudaSetDevice(1));
  {
    const Stream stream;
    CHECK(cudaMemsetAsync(zero.get(), 0, 4, stream) == cudaErrorInvalidValue);
    Refused("memory of device 0, used on 1");
  }
  Succeeds(cudaSetDevice(0));
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  Refused("device 2 of 2");
}

TEST_CASE("cudaPointerGetAttributes tells device, pinned and pageable memory apart") {
  const Session session;
  const Device device(10);
  const Pinned pinned(10);
  int pageable = 0;
  cudaPointerAttributes attributes = {};
  Succeeds(cudaPointerGetAttributes(&attributes, device.get() + 3));
  CHECK(attributes.type == cudaMemoryTypeDevice);
  Succeeds(cudaPointerGetAttributes(&attributes, pinned.get()));
  CHECK(attributes.type == cudaMemoryTypeHost);
  Succeeds(cudaPointerGetAttributes(&attributes, &pageable));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
}

}  // namespace
}  // namespace cuda_emulator_test
