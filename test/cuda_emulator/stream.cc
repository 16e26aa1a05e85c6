/// Streams: each a queue of closures and a thread that runs them in order.
///
/// In free mode a thread runs its front operation as soon as it may, after a random delay. In
/// scheduled mode it waits until a driver (scheduler.cc) tells it to. Either way an operation runs
/// on the thread of its stream, so that ThreadSanitizer sees a stream as what it is: a thread that
/// is ordered with others by events and by the host's waits alone. Each operation and each record
/// is a synchronisation tag of its own; one tag a stream would also order an operation after what
/// the host did when it queued later ones, and hide races.

#include "stream.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace cuda_emulator {
namespace {

bool MayStart(const Core& core, const CUstream_st& stream) {
  return core.schedule.mode == Mode::kFree ? Ready(stream) : stream.go;
}

// An error of the device: its kernels are over, and host functions are not called any more.
bool Failed() {
  const Lock lock;
  return TheCore().sticky != cudaSuccess;
}

void Execute(CUstream_st& stream, Operation& operation) {
  Acquire(&operation);
  InOperation() = true;
  for (const TranslatedRange& range : operation.ranges) {
    if (range.access == Access::kPin) continue;
    if (range.access == Access::kWorkspace) FillWithNan(range.data, range.bytes);
    if (range.access == Access::kRead) {
      DeclareRead(range.data, range.bytes);
    } else {
      DeclareWrite(range.data, range.bytes);
    }
  }
  const bool host_function = operation.kind == Operation::Kind::kHostFunction;
  if (operation.work && !(host_function && Failed())) {
    const Inside inside(!host_function);
    operation.work();
  }
  if (operation.kind == Operation::Kind::kRecord) {
    operation.record->time = std::chrono::steady_clock::now();
    Release(operation.record.get());
  }
  if (operation.kind == Operation::Kind::kWait) Acquire(operation.record.get());
  Release(&stream);
  InOperation() = false;
}

// Takes the front operation off, and wakes who may have waited for it.
std::unique_ptr<Operation> Complete(Core& core, CUstream_st& stream) {
  std::unique_ptr<Operation> done = std::move(stream.queue.front());
  stream.queue.pop_front();
  for (const TranslatedRange& range : done->ranges) --range.allocation->uses;
  ++stream.completed;
  stream.running = false;
  core.changed.notify_all();
  if (core.schedule.mode == Mode::kFree && done->kind == Operation::Kind::kRecord) {
    for (const auto& other : core.streams) other->wake.notify_one();
  }
  return done;
}

void Loop(const std::shared_ptr<CUstream_st>& stream) {
  const Inside inside;
  Core& core = TheCore();
  for (;;) {
    Operation* operation = nullptr;
    uint64_t delay_us = 0;
    {
      Lock lock;
      stream->wake.wait(lock.get(), [&] {
        return MayStart(core, *stream) || (stream->destroyed && stream->queue.empty());
      });
      if (!stream->queue.empty()) {
        stream->running = true;
        stream->go = false;
        operation = stream->queue.front().get();
      }
      if (operation && core.schedule.mode == Mode::kFree && core.schedule.delay_us > 0) {
        delay_us = stream->random() % (core.schedule.delay_us + uint64_t{1});
      }
    }
    if (!operation) {
      Release(&core.ended);  // before others can miss the stream
      const Lock lock;
      core.streams.erase(std::find(core.streams.begin(), core.streams.end(), stream));
      core.changed.notify_all();
      return;
    }
    if (delay_us > 0) {
      const Hidden hidden;
      usleep(static_cast<useconds_t>(delay_us));
    }
    Execute(*stream, *operation);
    const Hidden hidden;
    std::unique_ptr<Operation> done;
    {
      Lock lock;
      done = Complete(core, *stream);
    }
  }
}

}  // namespace

bool Done(const Target& target) { return target.stream->completed > target.position; }

bool Ready(const CUstream_st& stream) {
  if (stream.running || stream.queue.empty()) return false;
  const Operation& front = *stream.queue.front();
  return front.kind != Operation::Kind::kWait || Done(front.record->target);
}

CUstream_st* CreateStream(unsigned flags, int priority, int device) {
  auto stream = std::make_shared<CUstream_st>();
  stream->flags = flags;
  stream->priority = priority;
  stream->device = device;
  RegisterHandle(stream, kStreamKind);
  Lock lock;
  Core& core = TheCore();
  stream->number = core.streams_made++;
  stream->random.seed(core.schedule.seed * 1000003 + static_cast<uint64_t>(stream->number));
  core.streams.push_back(stream);
  std::thread([stream] { Loop(stream); }).detach();
  return stream.get();
}

void DestroyStream(CUstream_st* stream) {
  const Lock lock;
  stream->destroyed = true;
  stream->wake.notify_one();
}

bool CheckStreamLocked(Core& core, const char* api, cudaStream_t stream) {
  const auto found = core.handles.find(stream);
  if (found != core.handles.end() && found->second.kind == kStreamKind) return true;
  const bool special = !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  RefuseLocked(core, api,
               special ? "the default stream is refused: use one made with cudaStreamNonBlocking"
                       : "the stream is destroyed or never was one");
  return false;
}

bool CheckStream(const char* api, cudaStream_t stream) {
  const Lock lock;
  return CheckStreamLocked(TheCore(), api, stream);
}

int DeviceOf(cudaStream_t stream) { return IsLive(stream, kStreamKind) ? stream->device : -1; }

namespace {

Target PushLocked(Core& core, std::unique_lock<std::mutex>& lock, CUstream_st* stream,
                  std::unique_ptr<Operation> operation) {
  const Target target = {stream, stream->enqueued++};
  if (operation->kind == Operation::Kind::kRecord) operation->record->target = target;
  if (operation->kind == Operation::Kind::kHostFunction) StartPump(core);
  for (const TranslatedRange& range : operation->ranges) ++range.allocation->uses;
  operation->serial = core.operations++;
  stream->queue.push_back(std::move(operation));
  stream->wake.notify_one();
  if (core.schedule.mode == Mode::kScheduled) {
    core.changed.notify_all();
    AfterCall(core, lock);
  }
  return target;
}

bool CheckPinnedLocked(Core& core, const char* api, const Operand& operand) {
  const std::shared_ptr<Allocation> allocation = core.memory.Find(operand.data);
  const auto begin = reinterpret_cast<uintptr_t>(operand.data);
  if (allocation && allocation->pinned &&
      begin + operand.bytes <= allocation->begin + allocation->bytes) {
    return true;
  }
  RefuseLocked(core, api,
               fmt::format("{} ({}, {} bytes) is not inside one live pinned allocation",
                           operand.name, operand.data, operand.bytes));
  return false;
}

}  // namespace

cudaError_t EnqueueWork(const char* api, cudaStream_t stream, Work work) {
  auto operation = std::make_unique<Operation>();
  operation->kind = work.kind;
  operation->work = std::move(work.run);
  Release(operation.get());
  Lock lock;
  Core& core = TheCore();
  if (!CheckStreamLocked(core, api, stream)) return cudaErrorInvalidResourceHandle;
  if (work.on_current_device && CurrentDevice() != stream->device) {
    RefuseLocked(core, api, "the stream belongs to another device than the current one");
    return cudaErrorInvalidResourceHandle;
  }
  for (const Operand& operand : work.device) {
    if (operand.bytes == 0) continue;
    auto allocation = CheckRangeLocked(core, api, operand, work.alignment, stream->device);
    if (!allocation) return cudaErrorInvalidValue;
    operation->ranges.push_back({core.memory.Translate(operand.data), operand.bytes, operand.access,
                                 std::move(allocation)});
  }
  for (const Operand& operand : work.pinned) {
    if (!CheckPinnedLocked(core, api, operand)) return cudaErrorInvalidValue;
    operation->ranges.push_back({const_cast<void*>(operand.data), operand.bytes, operand.access,
                                 core.memory.Find(operand.data)});
  }
  PushLocked(core, lock.get(), stream, std::move(operation));
  return cudaSuccess;
}

bool Enqueue(const char* api, cudaStream_t stream, const std::vector<Operand>& operands,
             std::function<void()> work, size_t alignment) {
  Work wrapped;
  wrapped.device = operands;
  wrapped.run = std::move(work);
  wrapped.alignment = alignment;
  wrapped.on_current_device = true;
  return EnqueueWork(api, stream, std::move(wrapped)) == cudaSuccess;
}

Target Push(CUstream_st* stream, std::unique_ptr<Operation> operation) {
  Release(operation.get());
  Lock lock;
  return PushLocked(TheCore(), lock.get(), stream, std::move(operation));
}

std::shared_ptr<Record> PushRecord(CUstream_st* stream) {
  auto record = std::make_shared<Record>();
  auto operation = std::make_unique<Operation>();
  operation->kind = Operation::Kind::kRecord;
  operation->record = record;
  Push(stream, std::move(operation));
  return record;
}

void WaitFor(const Target& target) {
  Lock lock;
  Core& core = TheCore();
  if (core.schedule.mode == Mode::kScheduled) {
    Drive(core, lock.get(), target);
  } else {
    core.changed.wait(lock.get(), [&] { return Done(target); });
  }
}

bool Query(const Target& target) {
  // A host that asks again and again must see its answer change at last, yet "not ready" must come
  // often enough to be handled.
  constexpr int kPatience = 3;
  static thread_local int refusals = 0;
  Lock lock;
  Core& core = TheCore();
  if (core.schedule.mode == Mode::kScheduled && !Done(target)) {
    if (++refusals > kPatience) {
      DriveOnce(core, lock.get(), target);
    } else {
      AfterCall(core, lock.get());
    }
  }
  if (!Done(target)) return false;
  refusals = 0;
  return true;
}

void SynchronizeAll(int device) {
  std::vector<std::shared_ptr<CUstream_st>> streams;
  {
    const Lock lock;
    for (const auto& stream : TheCore().streams) {
      if (stream->device == device) streams.push_back(stream);
    }
  }
  std::vector<Target> targets;
  for (const auto& stream : streams) {
    Lock lock;
    if (stream->enqueued > 0) targets.push_back({stream.get(), stream->enqueued - 1});
  }
  for (const Target& target : targets) {
    WaitFor(target);
    Acquire(target.stream);
  }
  Acquire(&TheCore().ended);
}

void Drain() {
  std::vector<std::shared_ptr<CUstream_st>> streams;
  {
    const Lock lock;
    streams = TheCore().streams;
  }
  for (const auto& stream : streams) {
    Target last;
    {
      const Lock lock;
      if (stream->enqueued == 0) continue;
      last = {stream.get(), stream->enqueued - 1};
    }
    WaitFor(last);
  }
}

}  // namespace cuda_emulator
