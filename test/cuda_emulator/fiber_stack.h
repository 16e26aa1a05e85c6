#pragma once

#include <cstddef>

namespace cuda_emulator {

/// A stack with its place of execution. Changing stacks costs a few instructions; ucontext would
/// make two system calls, hundreds of times for each block of a kernel with barriers.
class FiberStack {
 public:
  /// Of `bytes`, starting at `entry`, which never returns. The lowest page faults. Throws
  /// bad_alloc.
  FiberStack(size_t bytes, void (*entry)());
  ~FiberStack();
  FiberStack(const FiberStack&) = delete;
  FiberStack& operator=(const FiberStack&) = delete;

  /// Leaves the current stack, at *from, for this one. Leave(*from) comes back.
  void Enter(void** from);
  /// Leaves this stack for the one at `to`.
  void Leave(void* to);

  const void* bottom() const { return bottom_; }
  size_t bytes() const { return bytes_; }

 private:
  char* bottom_;
  size_t bytes_;
  void* at_;
};

}  // namespace cuda_emulator
