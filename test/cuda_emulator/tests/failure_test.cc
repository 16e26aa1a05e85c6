#include "kernels.h"
#include "session.h"

namespace cuda_emulator_test {
namespace {

// Calls that each may fail, cleaned up whatever failed; true if all succeeded.
bool Work() {
  cudaStream_t stream = nullptr;
  void* device = nullptr;
  bool right = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess;
  right = right && cudaMalloc(&device, 400) == cudaSuccess;
  if (right) {
    Fill(1, static_cast<float*>(device), 100, stream);
    right = cudaGetLastError() == cudaSuccess;
  }
  if (stream) {
    if (cudaStreamSynchronize(stream) != cudaSuccess) {
      right = false;
      cudaStreamSynchronize(stream);
    }
    right &= cudaStreamDestroy(stream) == cudaSuccess;
  }
  right &= cudaFree(device) == cudaSuccess;
  return right;
}

TEST_CASE("each call can be made to fail, and a failed release still releases") {
  const Session session;
  CHECK(Work());
  const uint64_t calls = cuda_emulator::CallCount();
  CHECK(calls == 6);
  for (uint64_t n = 1; n <= calls; ++n) {
    CAPTURE(n);
    cuda_emulator::FailCall(n);
    CHECK_FALSE(Work());
    CHECK(cuda_emulator::CallFailed());
    CHECK(cuda_emulator::Leaks() == std::vector<std::string>{});
    CHECK(cuda_emulator::TakeMisuses() == std::vector<std::string>{});
    cudaGetLastError();
  }
  cuda_emulator::FailCall(0);
  CHECK(Work());
}

TEST_CASE("live memory and handles can be listed") {
  const Session session;
  const uint64_t made = cuda_emulator::AllocationCount();
  const Stream stream;
  const Event event;
  const Device device(10);
  const Pinned pinned(10);
  CHECK(cuda_emulator::LiveDeviceAllocations() == 1);
  CHECK(cuda_emulator::LivePinnedAllocations() == 1);
  CHECK(cuda_emulator::LiveHandles("cudaStream_t") == 1);
  CHECK(cuda_emulator::LiveHandles("cudaEvent_t") == 1);
  CHECK(cuda_emulator::Leaks().size() == 4);
  CHECK(cuda_emulator::AllocationCount() - made == 2);
}

}  // namespace
}  // namespace cuda_emulator_test
