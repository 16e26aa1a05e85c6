#include "support/allocations.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

thread_local int64_t by_this_thread = 0;
std::atomic<int64_t> by_all{0};

void* Counted(size_t bytes) noexcept {
  ++by_this_thread;
  by_all.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* CountedAligned(size_t bytes, size_t alignment) {
  ++by_this_thread;
  by_all.fetch_add(1, std::memory_order_relaxed);
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace pd {
int64_t AllocationsOfThisThread() { return by_this_thread; }
int64_t AllocationsOfAllThreads() { return by_all; }
}  // namespace pd

// The other forms of new and delete call these (with a sanitizer, arrays stay the sanitizer's).
void* operator new(size_t bytes) {
  void* memory = Counted(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Counted(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return CountedAligned(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
