#pragma once

/// What tests see and set of the emulator: the order in which streams run, what was done wrong,
/// what is still alive, and failures on purpose. Needs no CUDA header.
///
/// Environment, read once when the process starts (a wrong value ends it):
///   CUDA_EMULATOR_MODE      free (default): each stream runs as its thread gets there;
///                           scheduled: one operation at a time, in an order fixed by the seed
///   CUDA_EMULATOR_SEED      number, default 0
///   CUDA_EMULATOR_DELAY_US  free: longest random delay before an operation, default 0
///   CUDA_EMULATOR_POLICY    scheduled: eager, lazy, random or priority; default: the one at
///                           seed modulo 4 of this list
///   CUDA_EMULATOR_PRIORITY  priority: streams in the order of their creation (0 is the first),
///                           most urgent first, as in 2,0,1; those not named come last. Default: a
///                           permutation from the seed
///   CUDA_EMULATOR_FAIL_AT   the n-th call fails, counted from 1; default 0: none
///   CUDA_EMULATOR_DEVICES   number of devices, default 1
///   CUDA_EMULATOR_MEMORY    bytes of memory of each device, default 8 GiB
///
/// A process that leaves a misuse untaken, or memory or handles alive, ends with status 66.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cuda_emulator {

enum class Mode { kFree, kScheduled };

/// When a queued operation runs in scheduled mode. A missing wait shows under at least one:
/// what the host reads, overwrites or frees too early under kLazy, a stream that does not wait for
/// another under kPriority with that other last, and what only works late under kEager.
enum class Policy {
  kEager,    ///< at once: an enqueue returns when nothing can run any more
  kLazy,     ///< only what the host waits for needs
  kRandom,   ///< after each call, some; a wait runs any until it is over
  kPriority  ///< only when the host waits, and then always the most urgent stream that can run
};

struct Schedule {
  Mode mode = Mode::kFree;
  Policy policy = Policy::kEager;
  uint64_t seed = 0;
  unsigned delay_us = 0;
  std::vector<int> priority = {};
};

/// Runs what is queued, then takes the new schedule; streams are numbered from 0 again.
void SetSchedule(const Schedule& schedule);
Schedule CurrentSchedule();

/// Runs all that is queued on all streams.
void Drain();

/// The schedule and limits of the environment again, misuses forgotten, no failure planned.
void Reset();

/// The misuses so far, as `API: why`, and forgets them.
std::vector<std::string> TakeMisuses();

/// One line for each live allocation and handle: what the exit report would say.
std::vector<std::string> Leaks();
size_t LiveDeviceAllocations();
size_t LivePinnedAllocations();
size_t LiveHandles(const std::string& kind);

/// Whether the calling thread is one of the emulator's own, or in one of its calls: what it
/// allocates on the heap then is not of the code under test.
bool IsInside();

/// Device and pinned allocations, and handles, made since the process started (steady states make
/// none).
uint64_t AllocationCount();
uint64_t HandleCount();

/// API calls since the process started or Reset, how often the host waited for the device, and how
/// often for all of a stream or of a device.
uint64_t CallCount();
uint64_t SynchronizeCount();
uint64_t DrainCount();

/// The n-th call from now on fails (1: the next); 0: none.
void FailCall(uint64_t n);
/// Whether a planned failure happened.
bool CallFailed();

/// The device fails, until Reset: every wait and query says so, and no host function runs any more.
void FailDevice();

void SetMemoryLimit(size_t bytes);
void SetDeviceCount(int count);

}  // namespace cuda_emulator
