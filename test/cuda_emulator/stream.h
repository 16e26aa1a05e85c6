#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <random>

#include "state.h"

/// A stream: its queue and its thread (stream.cc).
struct CUstream_st {
  int number = 0;  ///< in the order of creation
  int device = 0;
  int priority = 0;
  unsigned flags = 0;
  std::deque<std::unique_ptr<cuda_emulator::Operation>> queue;  ///< the front one may be running
  uint64_t enqueued = 0;
  uint64_t completed = 0;
  bool go = false;       ///< scheduled mode: the front operation was chosen
  bool running = false;  ///< the front operation was chosen or runs
  bool destroyed = false;
  std::mt19937_64 random;
  std::condition_variable wake;
};

struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  std::shared_ptr<cuda_emulator::Record> record;  ///< the last one; null: never recorded
};

namespace cuda_emulator {

bool Done(const Target& target);

/// Whether a stream's next operation could run now.
bool Ready(const CUstream_st& stream);

CUstream_st* CreateStream(unsigned flags, int priority, int device);
void DestroyStream(CUstream_st* stream);

/// Queues an operation that was checked, and gives its place. Declares the enqueue → operation
/// edge.
Target Push(CUstream_st* stream, std::unique_ptr<Operation> operation);

/// Queues a record; null `record` makes one.
std::shared_ptr<Record> PushRecord(CUstream_st* stream);

/// Blocks the host until a target is over (no edge: the caller acquires what it waited for).
void WaitFor(const Target& target);

/// Whether it is over; in scheduled mode asking lets streams go on now and then.
bool Query(const Target& target);

/// Blocks until all of these streams' present work is over, and acquires it.
void SynchronizeAll(int device);

// Scheduled mode (scheduler.cc); the lock is held.

/// Runs what the policy wants to run after an enqueue or a query.
void AfterCall(Core& core, std::unique_lock<std::mutex>& lock);
/// Runs operations until `target` is over.
void Drive(Core& core, std::unique_lock<std::mutex>& lock, const Target& target);
/// Runs some operation towards `target`, for a host that only asks.
void DriveOnce(Core& core, std::unique_lock<std::mutex>& lock, const Target& target);
/// Starts the thread that keeps host functions going while the host waits on its own.
void StartPump(Core& core);

}  // namespace cuda_emulator
