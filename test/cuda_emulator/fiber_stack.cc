#include "fiber_stack.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "tsan.h"

#ifndef __x86_64__
#error "the emulator's fibers are written for x86-64"
#endif

// Saves what the ABI lets a callee keep, stores the stack pointer in *from and goes on at `to`.
extern "C" void CudaEmulatorSwitchStack(void** from, void* to);
asm(R"(
.text
.globl CudaEmulatorSwitchStack
.type CudaEmulatorSwitchStack, @function
CudaEmulatorSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size CudaEmulatorSwitchStack, .-CudaEmulatorSwitchStack
)");

namespace cuda_emulator {

FiberStack::FiberStack(size_t bytes, void (*entry)()) : bytes_(bytes) {
  constexpr size_t kPage = 4096;
  constexpr size_t kSavedRegisters = 6;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, kPage, PROT_NONE);
  bottom_ = static_cast<char*>(memory);
  // As if `entry` had been called and had changed stacks at once: no return address, then where to
  // go on, then the registers, all zero.
  auto* top = reinterpret_cast<uintptr_t*>(bottom_ + bytes);
  top[-2] = reinterpret_cast<uintptr_t>(entry);
  at_ = top - 2 - kSavedRegisters;
}

FiberStack::~FiberStack() {
  Unpoison(bottom_, bytes_);  // its frames never returned, and a thread may get these addresses
  munmap(bottom_, bytes_);
}

void FiberStack::Enter(void** from) { CudaEmulatorSwitchStack(from, at_); }

void FiberStack::Leave(void* to) { CudaEmulatorSwitchStack(&at_, to); }

}  // namespace cuda_emulator
