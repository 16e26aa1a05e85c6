#include "tsan.h"

// Weak: the sanitizers' run-time libraries define them where they are linked.
#define PD_WEAK extern "C" __attribute__((weak))
PD_WEAK void AnnotateIgnoreSyncBegin(const char* file, int line);
PD_WEAK void AnnotateIgnoreSyncEnd(const char* file, int line);
PD_WEAK void AnnotateIgnoreReadsBegin(const char* file, int line);
PD_WEAK void AnnotateIgnoreReadsEnd(const char* file, int line);
PD_WEAK void AnnotateIgnoreWritesBegin(const char* file, int line);
PD_WEAK void AnnotateIgnoreWritesEnd(const char* file, int line);
PD_WEAK void __tsan_acquire(void* tag);
PD_WEAK void __tsan_release(void* tag);
PD_WEAK void __tsan_read_range(void* data, unsigned long bytes);
PD_WEAK void __tsan_write_range(void* data, unsigned long bytes);
PD_WEAK void* __tsan_get_current_fiber();
PD_WEAK void* __tsan_create_fiber(unsigned flags);
PD_WEAK void __tsan_destroy_fiber(void* fiber);
PD_WEAK void __tsan_switch_to_fiber(void* fiber, unsigned flags);
PD_WEAK void __asan_poison_memory_region(const volatile void* data, size_t bytes);
PD_WEAK void __asan_unpoison_memory_region(const volatile void* data, size_t bytes);
PD_WEAK void __sanitizer_start_switch_fiber(void** saved, const void* bottom, size_t bytes);
PD_WEAK void __sanitizer_finish_switch_fiber(void* saved, const void** bottom, size_t* bytes);

namespace cuda_emulator {
namespace {

void* Mutable(const void* data) { return const_cast<void*>(data); }

}  // namespace

Hidden::Hidden() {
  if (!AnnotateIgnoreSyncBegin) return;
  AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

Hidden::~Hidden() {
  if (!AnnotateIgnoreSyncEnd) return;
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}

void Release(const void* tag) {
  if (__tsan_release) __tsan_release(Mutable(tag));
}

void Acquire(const void* tag) {
  if (__tsan_acquire) __tsan_acquire(Mutable(tag));
}

void DeclareRead(const void* data, size_t bytes) {
  if (__tsan_read_range) __tsan_read_range(Mutable(data), bytes);
}

void DeclareWrite(const void* data, size_t bytes) {
  if (__tsan_write_range) __tsan_write_range(Mutable(data), bytes);
}

void* CurrentTsanFiber() { return __tsan_get_current_fiber ? __tsan_get_current_fiber() : nullptr; }

void* CreateTsanFiber() { return __tsan_create_fiber ? __tsan_create_fiber(0) : nullptr; }

void DestroyTsanFiber(void* fiber) {
  if (fiber) __tsan_destroy_fiber(fiber);
}

void SwitchTsanFiber(void* fiber) {
  constexpr unsigned kNoSync = 1;
  if (fiber) __tsan_switch_to_fiber(fiber, kNoSync);
}

void Poison(const void* data, size_t bytes) {
  if (__asan_poison_memory_region) __asan_poison_memory_region(data, bytes);
}

void Unpoison(const void* data, size_t bytes) {
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(data, bytes);
}

void StartStackSwitch(void** saved, const void* bottom, size_t bytes) {
  if (__sanitizer_start_switch_fiber) __sanitizer_start_switch_fiber(saved, bottom, bytes);
}

void FinishStackSwitch(void* saved, const void** old_bottom, size_t* old_bytes) {
  if (__sanitizer_finish_switch_fiber) {
    __sanitizer_finish_switch_fiber(saved, old_bottom, old_bytes);
  }
}

}  // namespace cuda_emulator
