#pragma once

/// The emulator's one state, and the queues in it. Everything in Core is guarded by Core::mutex,
/// taken with Lock; nothing that the code under test gave (work, host functions) runs under it.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "control.h"
#include "core.h"
#include "memory.h"
#include "tsan.h"

namespace cuda_emulator {

/// A place in a stream: over once the stream has completed more than `position` operations.
struct Target {
  CUstream_st* stream = nullptr;
  uint64_t position = 0;
};

/// One cudaEventRecord, or one wait of the host.
struct Record {
  Target target;
  std::chrono::steady_clock::time_point time;
};

struct TranslatedRange {
  void* data;
  size_t bytes;
  Access access;
  std::shared_ptr<Allocation> allocation;
};

struct Operation {
  enum class Kind { kWork, kRecord, kWait, kHostFunction };
  Kind kind = Kind::kWork;
  std::function<void()> work;
  std::vector<TranslatedRange> ranges;
  std::shared_ptr<Record> record;
  uint64_t serial = 0;  ///< over all streams
};

constexpr const char* kStreamKind = "cudaStream_t";
constexpr const char* kEventKind = "cudaEvent_t";

struct Handle {
  std::shared_ptr<void> object;
  std::string kind;
  uint64_t serial;
};

struct Core {
  Core();

  std::mutex mutex;
  std::condition_variable changed;  ///< an operation completed, a driver let go, a queue emptied

  Memory memory;
  size_t memory_limit;
  int devices;

  Schedule schedule;
  std::mt19937_64 random;
  int streams_made = 0;
  std::vector<std::shared_ptr<CUstream_st>> streams;  ///< live, or destroyed with work left
  char ended = 0;        ///< tag: what destroyed streams did, once they left `streams`
  bool driving = false;  ///< a thread is choosing and running operations (scheduled mode)
  bool pump_started = false;
  uint64_t operations = 0;
  uint64_t activity = 0;       ///< counts API calls, for the pump
  std::set<int> host_threads;  ///< ids of the threads that called the API

  std::map<const void*, Handle> handles;
  uint64_t handles_made = 0;
  std::vector<std::shared_ptr<void>> forgotten;  ///< keeps the addresses of dead handles taken

  std::vector<std::string> misuses;
  std::set<std::string> printed;
  cudaError_t sticky = cudaSuccess;  ///< a kernel went wrong: every later wait says so
  uint64_t calls = 0;
  uint64_t fail_at = 0;
  bool failed = false;
  uint64_t synchronizations = 0;  ///< of these on all of a stream or device: drains
  uint64_t drains = 0;
};

Core& TheCore();

/// Holds the core's lock, unseen by ThreadSanitizer.
class Lock {
 public:
  Lock() : lock_(TheCore().mutex) {}
  std::unique_lock<std::mutex>& get() { return lock_; }

 private:
  Hidden hidden_;
  std::unique_lock<std::mutex> lock_;
};

/// Refuse with the lock held.
void RefuseLocked(Core& core, const char* api, const std::string& why);

/// Whether the calling thread runs an operation of a stream right now.
bool& InOperation();

/// The schedule and limits of the environment.
void ReadEnvironment(Core& core);

/// The allocation that holds the whole operand, refusing if there is none.
std::shared_ptr<Allocation> CheckRangeLocked(Core& core, const char* api, const Operand& operand,
                                             size_t alignment, int device);

bool CheckStreamLocked(Core& core, const char* api, cudaStream_t stream);

/// Enqueue for the runtime itself: also names pinned memory, and says what was wrong.
struct Work {
  Operation::Kind kind = Operation::Kind::kWork;
  std::vector<Operand> device;
  std::vector<Operand> pinned;
  std::function<void()> run;
  size_t alignment = 1;
  bool on_current_device = false;  ///< the stream must belong to the current device
};
cudaError_t EnqueueWork(const char* api, cudaStream_t stream, Work work);

}  // namespace cuda_emulator
