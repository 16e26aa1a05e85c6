/// Scheduled mode: who runs next. One operation at a time, chosen by a host thread inside a call of
/// the API (the driver), run by the thread of its stream.
///
/// Order depends on the seed and on the calls alone, so one host thread gets the same order in each
/// run. Host functions are the exception: the host may hold a lock that one of them wants, so a
/// driver waits for it only a while, and the pump runs those for which the host waits by means of
/// its own.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "stream.h"

namespace cuda_emulator {
namespace {

using Clock = std::chrono::steady_clock;

// How long a driver waits for a host function before it goes on without it.
constexpr auto kHostFunctionPatience = std::chrono::milliseconds(100);
// The pump looks this often, and no longer waits for awake host threads after so long without call.
constexpr useconds_t kPumpPeriodUs = 200;
constexpr auto kPumpPatience = std::chrono::milliseconds(20);

// Smaller runs first.
uint64_t Rank(const Schedule& schedule, int number) {
  if (schedule.priority.empty()) {
    return std::mt19937_64(schedule.seed * 1000003 + static_cast<uint64_t>(number))();
  }
  const auto found = std::find(schedule.priority.begin(), schedule.priority.end(), number);
  const auto place = static_cast<uint64_t>(found - schedule.priority.begin());
  return found == schedule.priority.end() ? place + static_cast<uint64_t>(number) : place;
}

// The stream whose front operation the target needs first. A stream that waits is blocked on one
// record, which was queued before the wait: so the way ends. Null: that stream is running.
CUstream_st* Needed(const Target& target) {
  CUstream_st* stream = target.stream;
  while (!stream->running) {
    const Operation& front = *stream->queue.front();
    if (front.kind != Operation::Kind::kWait || Done(front.record->target)) return stream;
    stream = front.record->target.stream;
  }
  return nullptr;
}

// The next stream to run; null: none may or should. Without target the host does not wait.
CUstream_st* Choose(Core& core, const Target* target) {
  const Policy policy = core.schedule.policy;
  if (policy == Policy::kLazy) return target ? Needed(*target) : nullptr;
  std::vector<CUstream_st*> ready;
  for (const auto& stream : core.streams) {
    if (Ready(*stream)) ready.push_back(stream.get());
  }
  if (ready.empty()) return nullptr;
  if (policy == Policy::kPriority) {
    if (!target) return nullptr;
    return *std::min_element(ready.begin(), ready.end(), [&](CUstream_st* a, CUstream_st* b) {
      return Rank(core.schedule, a->number) < Rank(core.schedule, b->number);
    });
  }
  return ready[core.random() % ready.size()];
}

void RunFront(Core& core, std::unique_lock<std::mutex>& lock, CUstream_st& stream) {
  const bool host_function = stream.queue.front()->kind == Operation::Kind::kHostFunction;
  const uint64_t before = stream.completed;
  const auto finished = [&] { return stream.completed > before; };
  stream.running = true;
  stream.go = true;
  core.driving = true;
  stream.wake.notify_one();
  if (host_function) {
    core.changed.wait_for(lock, kHostFunctionPatience, finished);
  } else {
    core.changed.wait(lock, finished);
  }
  core.driving = false;
  core.changed.notify_all();
}

// The oldest host function that is queued and not running.
bool OldestHostFunction(const Core& core, Target* target) {
  uint64_t oldest = UINT64_MAX;
  for (const auto& stream : core.streams) {
    if (stream->running) continue;
    for (size_t i = 0; i < stream->queue.size(); ++i) {
      const Operation& operation = *stream->queue[i];
      if (operation.kind != Operation::Kind::kHostFunction || operation.serial >= oldest) continue;
      oldest = operation.serial;
      *target = {stream.get(), stream->completed + i};
    }
  }
  return oldest != UINT64_MAX;
}

bool Asleep(int thread) {
  const int file = open(fmt::format("/proc/self/task/{}/stat", thread).c_str(), O_RDONLY);
  if (file < 0) return true;  // it ended
  std::array<char, 512> text = {};
  const ssize_t length = read(file, text.data(), text.size() - 1);
  close(file);
  const char* name_end = length > 0 ? std::strrchr(text.data(), ')') : nullptr;
  return name_end && name_end[1] == ' ' && name_end[2] == 'S';
}

// Whether the host does nothing by itself since `activity`: then it may wait for a host function.
bool HostIdle(const Core& core, uint64_t activity, Clock::time_point since) {
  if (core.driving || core.activity != activity) return false;
  return Clock::now() - since > kPumpPatience ||
         std::all_of(core.host_threads.begin(), core.host_threads.end(), Asleep);
}

void Pump() {
  const Inside inside;
  const Hidden hidden;
  Core& core = TheCore();
  for (;;) {
    Target target;
    uint64_t activity = 0;
    {
      Lock lock;
      core.changed.wait(lock.get(), [&] {
        return core.schedule.mode == Mode::kScheduled && OldestHostFunction(core, &target);
      });
      activity = core.activity;
    }
    const Clock::time_point since = Clock::now();
    for (int idle = 0; idle < 2;) {
      usleep(kPumpPeriodUs);
      const Lock lock;
      if (core.activity != activity) break;
      idle = HostIdle(core, activity, since) ? idle + 1 : 0;
    }
    Lock lock;
    if (core.activity != activity || !OldestHostFunction(core, &target)) continue;
    // No random numbers here: when the pump comes depends on the clock.
    while (!Done(target) && !core.driving && core.schedule.mode == Mode::kScheduled) {
      CUstream_st* stream =
          core.schedule.policy == Policy::kPriority ? Choose(core, &target) : Needed(target);
      if (!stream) break;
      RunFront(core, lock.get(), *stream);
    }
  }
}

}  // namespace

void AfterCall(Core& core, std::unique_lock<std::mutex>& lock) {
  const Policy policy = core.schedule.policy;
  if (policy == Policy::kLazy || policy == Policy::kPriority) return;
  uint64_t left = policy == Policy::kEager ? UINT64_MAX : core.random() % 3;
  while (left-- > 0) {
    core.changed.wait(lock, [&] { return !core.driving; });
    CUstream_st* stream = Choose(core, nullptr);
    if (!stream) return;
    RunFront(core, lock, *stream);
  }
}

void Drive(Core& core, std::unique_lock<std::mutex>& lock, const Target& target) {
  while (!Done(target)) {
    CUstream_st* stream = core.driving ? nullptr : Choose(core, &target);
    if (stream) {
      RunFront(core, lock, *stream);
    } else {
      core.changed.wait(lock);
    }
  }
}

void DriveOnce(Core& core, std::unique_lock<std::mutex>& lock, const Target& target) {
  if (core.driving || Done(target)) return;
  if (CUstream_st* stream = Choose(core, &target)) RunFront(core, lock, *stream);
}

void StartPump(Core& core) {
  if (core.pump_started || core.schedule.mode != Mode::kScheduled) return;
  core.pump_started = true;
  std::thread(Pump).detach();
}

void SetSchedule(const Schedule& schedule) {
  Drain();
  const Lock lock;
  Core& core = TheCore();
  core.schedule = schedule;
  core.random.seed(schedule.seed);
  core.streams_made = 0;
}

Schedule CurrentSchedule() {
  const Lock lock;
  return TheCore().schedule;
}

}  // namespace cuda_emulator
