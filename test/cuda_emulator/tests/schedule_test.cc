#include <cmath>
#include <mutex>

#include "kernels.h"
#include "session.h"

namespace cuda_emulator_test {
namespace {

using cuda_emulator::Mode;
using cuda_emulator::Policy;
using cuda_emulator::Schedule;

constexpr int kSteps = 4;

enum class Missing { kNothing, kUploadedWait, kConsumedWait, kComputedWait, kHostWait };

// Upload, compute and download streams with one buffer each way: y = 2 x + 0 for step after step.
// Gives what the host saw; `missing` leaves out one wait.
std::vector<float> Pipeline(const Schedule& schedule, Missing missing) {
  const Session session(schedule);
  const Stream upload, compute, download;
  const Device x(8), y(8);
  const Pinned in(8), out(8);
  const Event uploaded, consumed, computed, downloaded;
  std::vector<float> seen;
  const auto wait = [&](Missing which, cudaStream_t stream, cudaEvent_t event) {
    if (which != missing) Succeeds(cudaStreamWaitEvent(stream, event, 0));
  };
  for (int step = 0; step < kSteps; ++step) {
    Succeeds(cudaEventSynchronize(uploaded));  // before writing what an upload still reads
    in.Set(static_cast<float>(step + 1));
    wait(Missing::kConsumedWait, upload, consumed);
    Upload(x, in, upload);
    Succeeds(cudaEventRecord(uploaded, upload));
    wait(Missing::kUploadedWait, compute, uploaded);
    wait(Missing::kNothing, compute, downloaded);
    Fill(0, y.get(), 8, compute);
    Axpy(2, x.get(), y.get(), 8, compute);
    Succeeds(cudaGetLastError());
    Succeeds(cudaEventRecord(consumed, compute));
    Succeeds(cudaEventRecord(computed, compute));
    wait(Missing::kComputedWait, download, computed);
    Download(out, y, download);
    Succeeds(cudaEventRecord(downloaded, download));
    if (missing != Missing::kHostWait) Succeeds(cudaEventSynchronize(downloaded));
    seen.push_back(out[7]);
  }
  Succeeds(cudaDeviceSynchronize());
  return seen;
}

// The same without waiting for each step: two uploads in flight, and their results summed.
float Overlapped(const Schedule& schedule, bool wait) {
  const Session session(schedule);
  const Stream upload, compute;
  const Device x(8), y(8);
  const Pinned first(8), second(8), out(8);
  const Event uploaded, consumed;
  first.Set(1);
  second.Set(10);
  Fill(0, y.get(), 8, compute);
  for (const Pinned* in : {&first, &second}) {
    if (wait) Succeeds(cudaStreamWaitEvent(upload, consumed, 0));
    Upload(x, *in, upload);
    Succeeds(cudaEventRecord(uploaded, upload));
    Succeeds(cudaStreamWaitEvent(compute, uploaded, 0));
    Axpy(1, x.get(), y.get(), 8, compute);
    Succeeds(cudaEventRecord(consumed, compute));
  }
  Download(out, y, compute);
  compute.Wait();
  upload.Wait();
  return out[0];
}

std::vector<Schedule> Schedules() {
  std::vector<Schedule> all = {{.mode = Mode::kFree}, {.mode = Mode::kFree, .delay_us = 300}};
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (const Policy policy :
         {Policy::kEager, Policy::kLazy, Policy::kRandom, Policy::kPriority}) {
      all.push_back({.mode = Mode::kScheduled, .policy = policy, .seed = seed});
    }
  }
  for (const int last : {0, 1, 2}) {
    std::vector<int> priority;
    for (int stream = 0; stream < 3; ++stream) {
      if (stream != last) priority.push_back(stream);
    }
    priority.push_back(last);
    all.push_back(
        {.mode = Mode::kScheduled, .policy = Policy::kPriority, .priority = std::move(priority)});
  }
  return all;
}

const std::vector<float> kRight = {2, 4, 6, 8};

bool SameValues(const std::vector<float>& a, const std::vector<float>& b) { return a == b; }

TEST_CASE("with all waits every schedule gives the right result") {
  for (const Schedule& schedule : Schedules()) {
    CAPTURE(static_cast<int>(schedule.policy), schedule.seed);
    CHECK(Pipeline(schedule, Missing::kNothing) == kRight);
    CHECK(Overlapped(schedule, true) == 11);
  }
}

TEST_CASE("a missing wait between streams gives a wrong result when that stream runs lazily") {
  if (kThreadSanitizer) return;  // there it is a report: exit_test.cc
  const Schedule lazy = {.mode = Mode::kScheduled, .policy = Policy::kLazy};
  CHECK_FALSE(SameValues(Pipeline(lazy, Missing::kUploadedWait), kRight));
  CHECK_FALSE(SameValues(Pipeline(lazy, Missing::kComputedWait), kRight));
}

TEST_CASE("a host that does not wait for a download sees old values under lazy") {
  if (kThreadSanitizer) return;  // there it is a report: exit_test.cc
  const Schedule lazy = {.mode = Mode::kScheduled, .policy = Policy::kLazy};
  const std::vector<float> seen = Pipeline(lazy, Missing::kHostWait);
  CHECK(std::isnan(seen[0]));
}

TEST_CASE("an upload that does not wait for its buffer overwrites it when it goes first") {
  if (kThreadSanitizer) return;  // there it is a report: exit_test.cc
  const Schedule upload_first = {
      .mode = Mode::kScheduled, .policy = Policy::kPriority, .priority = {0, 1}};
  CHECK(Overlapped(upload_first, false) == 20);
  const Schedule eager = {.mode = Mode::kScheduled, .policy = Policy::kEager};
  CHECK(Overlapped(eager, false) == 11);  // as it usually does on a device
}

std::vector<int> HostFunctionOrder(const Schedule& schedule) {
  const Session session(schedule);
  std::vector<int> order;
  std::mutex mutex;  // host functions of different streams may run at once
  struct Mark {
    std::mutex* mutex;
    std::vector<int>* order;
    int number;
  };
  std::vector<Mark> marks;
  for (int i = 0; i < 30; ++i) marks.push_back({&mutex, &order, i});
  const Stream a, b, c;
  for (int i = 0; i < 30; ++i) {
    const cudaStream_t streams[] = {a, b, c};
    Succeeds(cudaLaunchHostFunc(
        streams[i % 3],
        [](void* data) {
          const auto& mark = *static_cast<Mark*>(data);
          const std::lock_guard lock(*mark.mutex);
          mark.order->push_back(mark.number);
        },
        &marks[static_cast<size_t>(i)]));
  }
  Succeeds(cudaDeviceSynchronize());
  return order;
}

TEST_CASE("scheduled mode repeats its order for a seed, and differs between seeds") {
  const auto random = [](uint64_t seed) {
    return HostFunctionOrder({.mode = Mode::kScheduled, .policy = Policy::kRandom, .seed = seed});
  };
  const std::vector<int> first = random(1);
  CHECK(first.size() == 30);
  CHECK(random(1) == first);
  CHECK(random(2) != first);
}

}  // namespace
}  // namespace cuda_emulator_test
