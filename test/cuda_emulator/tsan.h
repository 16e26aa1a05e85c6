#pragma once

/// What the emulator tells ThreadSanitizer (and AddressSanitizer); nothing in builds without them.
///
/// The emulator's own locks and threads must not look like ordering that CUDA gives, or they hide
/// the races of the code under test. So its files are built without -fsanitize=thread, whatever
/// they do is hidden (Hidden), and only the edges that CUDA documents are declared:
/// enqueue → operation, record → wait, operation → the host that waited for it.

#include <cstddef>

namespace cuda_emulator {

/// While one lives, the calling thread's accesses and synchronisation do not exist.
class Hidden {
 public:
  Hidden();
  ~Hidden();
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;
};

/// All that any thread did before Release(tag) comes before what follows Acquire(tag).
void Release(const void* tag);
void Acquire(const void* tag);

/// Declares an access of the calling thread.
void DeclareRead(const void* data, size_t bytes);
void DeclareWrite(const void* data, size_t bytes);

/// Fibers; all null without ThreadSanitizer. Switching gives no ordering.
void* CurrentTsanFiber();
void* CreateTsanFiber();
void DestroyTsanFiber(void* fiber);
void SwitchTsanFiber(void* fiber);

/// AddressSanitizer: makes memory fault, or work again.
void Poison(const void* data, size_t bytes);
void Unpoison(const void* data, size_t bytes);

/// AddressSanitizer's view of a change of stack: start on the old one, finish on the new one.
void StartStackSwitch(void** saved, const void* bottom, size_t bytes);
void FinishStackSwitch(void* saved, const void** old_bottom, size_t* old_bytes);

}  // namespace cuda_emulator
