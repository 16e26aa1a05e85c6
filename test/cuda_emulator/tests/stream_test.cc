#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "kernels.h"
#include "session.h"

namespace cuda_emulator_test {
namespace {

using cuda_emulator::Mode;
using cuda_emulator::Policy;
using cuda_emulator::Schedule;

std::vector<Schedule> AllSchedules() {
  return {{.mode = Mode::kFree, .delay_us = 200},
          {.mode = Mode::kScheduled, .policy = Policy::kEager},
          {.mode = Mode::kScheduled, .policy = Policy::kLazy},
          {.mode = Mode::kScheduled, .policy = Policy::kRandom, .seed = 3},
          {.mode = Mode::kScheduled, .policy = Policy::kPriority}};
}

TEST_CASE("a stream runs its work in order, host functions too, in every mode") {
  for (const Schedule& schedule : AllSchedules()) {
    const Session session(schedule);
    const Stream stream;
    const Device x(64);
    const Pinned out(64);
    std::vector<float> seen;
    struct Look {
      const Pinned* from;
      std::vector<float>* to;
    } look{&out, &seen};
    for (int i = 0; i < 5; ++i) {
      Fill(static_cast<float>(i), x.get(), 64, stream);
      Succeeds(cudaGetLastError());
      Download(out, x, stream);
      const cudaHostFn_t append = [](void* data) {
        const auto& what = *static_cast<Look*>(data);
        what.to->push_back((*what.from)[63]);
      };
      Succeeds(cudaLaunchHostFunc(stream, append, &look));
    }
    stream.Wait();
    CHECK(seen == std::vector<float>{0, 1, 2, 3, 4});
  }
}

TEST_CASE("work runs inside the emulator, and host functions and callers outside") {
  for (const Schedule& schedule : AllSchedules()) {
    const Session session(schedule);
    const Stream stream;
    bool inside = true;
    const cudaHostFn_t look = [](void* to) { *static_cast<bool*>(to) = cuda_emulator::IsInside(); };
    Succeeds(cudaLaunchHostFunc(stream, look, &inside));
    CHECK_FALSE(cuda_emulator::IsInside());
    stream.Wait();
    CHECK_FALSE(inside);
  }
}

TEST_CASE("waits for all of a stream or device are counted apart from those for an event") {
  const Session session;
  const Stream stream;
  const uint64_t handles = cuda_emulator::HandleCount();
  const Event event;
  CHECK(cuda_emulator::HandleCount() == handles + 1);
  Succeeds(cudaEventRecord(event, stream));
  Succeeds(cudaEventSynchronize(event));
  CHECK(cuda_emulator::SynchronizeCount() == 1);
  CHECK(cuda_emulator::DrainCount() == 0);
  stream.Wait();
  Succeeds(cudaDeviceSynchronize());
  CHECK(cuda_emulator::SynchronizeCount() == 3);
  CHECK(cuda_emulator::DrainCount() == 2);
}

struct Signal {
  std::mutex mutex;
  std::condition_variable condition;
  bool set = false;

  static void Set(void* signal) {
    auto* self = static_cast<Signal*>(signal);
    const std::lock_guard lock(self->mutex);
    self->set = true;
    self->condition.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex);
    condition.wait(lock, [&] { return set; });
  }
};

TEST_CASE("a host that waits for a host function by a condition variable goes on in every mode") {
  for (const Schedule& schedule : AllSchedules()) {
    const Session session(schedule);
    const Stream upload, compute;
    const Device x(10);
    const Pinned in(10), out(10);
    const Event uploaded;
    in.Set(7);
    Upload(x, in, upload);
    Succeeds(cudaEventRecord(uploaded, upload));
    Succeeds(cudaStreamWaitEvent(compute, uploaded, 0));
    Download(out, x, compute);
    Signal signal;
    Succeeds(cudaLaunchHostFunc(compute, &Signal::Set, &signal));
    signal.Wait();
    CHECK(out[9] == 7);
    compute.Wait();
    upload.Wait();
  }
}

TEST_CASE("an enqueue never waits for ever for a host function that wants a lock of the caller") {
  const Session session({.mode = Mode::kScheduled, .policy = Policy::kEager});
  const Stream stream;
  const Device x(10);
  Signal signal;
  {
    const std::lock_guard lock(signal.mutex);
    Succeeds(cudaLaunchHostFunc(stream, &Signal::Set, &signal));
    Succeeds(cudaMemsetAsync(x.get(), 0, x.bytes(), stream));
  }
  signal.Wait();
  stream.Wait();
}

TEST_CASE("a host function may not call the API") {
  const Session session;
  const Stream stream;
  cudaError_t inside = cudaSuccess;
  Succeeds(cudaLaunchHostFunc(
      stream, [](void* error) { *static_cast<cudaError_t*>(error) = cudaDeviceSynchronize(); },
      &inside));
  stream.Wait();
  CHECK(inside != cudaSuccess);
  Refused("called from a host function");
}

TEST_CASE("cudaStreamQuery says not ready at first and success at last") {
  for (const Schedule& schedule : AllSchedules()) {
    if (schedule.policy == Policy::kEager) continue;
    const Session session(schedule);
    const Stream stream;
    Succeeds(cudaStreamQuery(stream));
    const Device x(10);
    for (int i = 0; i < 20; ++i) Succeeds(cudaMemsetAsync(x.get(), 0, x.bytes(), stream));
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaErrorNotReady);
    while (cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
    cudaGetLastError();
    Succeeds(cudaStreamQuery(stream));
  }
}

TEST_CASE("cudaDeviceSynchronize waits for all streams, destroyed ones too") {
  for (const Schedule& schedule : AllSchedules()) {
    const Session session(schedule);
    const Device x(10), y(10);
    const Pinned a(10), b(10), out(10);
    a.Set(1);
    const Stream kept;
    {
      const Stream gone;
      Upload(x, a, gone);
      Download(out, x, gone);
    }
    Upload(y, a, kept);
    Download(b, y, kept);
    Succeeds(cudaDeviceSynchronize());
    CHECK(out[0] == 1);
    CHECK(b[0] == 1);
  }
}

TEST_CASE("a destroyed stream is refused") {
  const Session session;
  cudaStream_t stream = nullptr;
  Succeeds(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Succeeds(cudaStreamDestroy(stream));
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  Refused("destroyed");
  CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  Refused("destroyed");
}

TEST_CASE("each host thread has its own device and last error") {
  const Session session;
  cuda_emulator::SetDeviceCount(2);
  Succeeds(cudaSetDevice(1));
  CHECK(cudaSetDevice(5) == cudaErrorInvalidDevice);
  cuda_emulator::TakeMisuses();
  int device = -1;
  cudaError_t error = cudaErrorUnknown;
  std::thread([&] {
    cudaGetDevice(&device);
    error = cudaGetLastError();
  }).join();
  CHECK(device == 0);
  CHECK(error == cudaSuccess);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  Succeeds(cudaSetDevice(0));
}

TEST_CASE("no device is an error of its own") {
  const Session session;
  cuda_emulator::SetDeviceCount(0);
  int count = -1;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
}

}  // namespace
}  // namespace cuda_emulator_test
