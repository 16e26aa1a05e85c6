#include "session.h"

namespace cuda_emulator_test {
namespace {

using cuda_emulator::Mode;
using cuda_emulator::Policy;

const cuda_emulator::Schedule kLazy = {.mode = Mode::kScheduled, .policy = Policy::kLazy};

TEST_CASE("an event that was never recorded is no wait and is over") {
  const Session session(kLazy);
  const Stream stream;
  const Event event;
  Succeeds(cudaStreamWaitEvent(stream, event, 0));
  Succeeds(cudaEventQuery(event));
  Succeeds(cudaEventSynchronize(event));
  Succeeds(cudaStreamQuery(stream));
}

TEST_CASE("a wait takes the record that is current when it is called") {
  const Session session(kLazy);
  const Stream producer, consumer;
  const Event event;
  const Device x(1), other(1);
  const Pinned in(1), out(1);
  in.Set(1);
  Upload(x, in, producer);
  Succeeds(cudaEventRecord(event, producer));
  Succeeds(cudaStreamWaitEvent(consumer, event, 0));
  Download(out, x, consumer);
  Upload(other, in, producer);
  Succeeds(cudaEventRecord(event, producer));  // the wait above keeps the first record
  consumer.Wait();
  CHECK(out[0] == 1);
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  Succeeds(cudaEventSynchronize(event));
  Succeeds(cudaEventQuery(event));
}

TEST_CASE("cudaEventSynchronize waits for what came before the record only") {
  const Session session(kLazy);
  const Stream stream;
  const Event before, after;
  const Device x(1);
  Succeeds(cudaMemsetAsync(x.get(), 0, 4, stream));
  Succeeds(cudaEventRecord(before, stream));
  Succeeds(cudaMemsetAsync(x.get(), 1, 4, stream));
  Succeeds(cudaEventRecord(after, stream));
  Succeeds(cudaEventSynchronize(before));
  CHECK(cudaEventQuery(after) == cudaErrorNotReady);
  stream.Wait();
}

TEST_CASE("an event may be destroyed while streams wait for it") {
  const Session session(kLazy);
  const Stream producer, consumer;
  const Device x(1);
  const Pinned in(1), out(1);
  in.Set(5);
  Upload(x, in, producer);
  {
    const Event event;
    Succeeds(cudaEventRecord(event, producer));
    Succeeds(cudaStreamWaitEvent(consumer, event, 0));
  }
  Download(out, x, consumer);
  consumer.Wait();
  CHECK(out[0] == 5);
}

TEST_CASE("elapsed time wants two events with timing, recorded and over") {
  const Session session(kLazy);
  const Stream stream;
  const Event start(cudaEventDefault), end(cudaEventBlockingSync), untimed;
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, start, end) == cudaErrorInvalidResourceHandle);
  Refused("never recorded");
  Succeeds(cudaEventRecord(start, stream));
  Succeeds(cudaEventRecord(end, stream));
  Succeeds(cudaEventRecord(untimed, stream));
  CHECK(cudaEventElapsedTime(&ms, start, end) == cudaErrorNotReady);
  stream.Wait();
  Succeeds(cudaEventElapsedTime(&ms, start, end));
  CHECK(ms >= 0);
  CHECK(cudaEventElapsedTime(&ms, start, untimed) == cudaErrorInvalidResourceHandle);
  Refused("without timing");
}

TEST_CASE("a destroyed event is refused") {
  const Session session;
  const Stream stream;
  cudaEvent_t event = nullptr;
  Succeeds(cudaEventCreate(&event));
  Succeeds(cudaEventDestroy(event));
  CHECK(cudaEventRecord(event, stream) == cudaErrorInvalidResourceHandle);
  Refused("destroyed");
  // Its address is not given to a later event.
  const Event other;
  CHECK(static_cast<cudaEvent_t>(other) != event);
}

}  // namespace
}  // namespace cuda_emulator_test
