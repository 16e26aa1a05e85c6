#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "support/forwarding_backend.h"

namespace pd {

/// Calls of operator new in all threads of the program while watching is on: those that kernels
/// made (inside calls of a WatchedBackend), and all others.
struct Allocations {
  int64_t ours = 0, kernels = 0;
};
void WatchAllocations(bool on);
/// Leaves out calls on threads for which it is true: inside an emulation.
void IgnoreAllocationsWhile(bool (*inside)());
Allocations CountedAllocations();  ///< Since watching was last switched on.

/// Passes everything on to a backend, adds up the memory that it is asked for, and marks the time
/// inside its kernels.
class WatchedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  size_t allocated_bytes() const { return allocated_bytes_; }

  Buffer Allocate(size_t bytes) override {
    allocated_bytes_ += bytes;
    return inner().Allocate(bytes);
  }
  Buffer AllocateStaging(size_t bytes) override {
    allocated_bytes_ += bytes;
    return inner().AllocateStaging(bytes);
  }
  void Copy(void* to, const void* from, size_t bytes) override;
  void ToDense(const Layout& layout, const void* inner, void* dense) override;
  void FromDense(const Layout& layout, const void* dense, void* inner) override;
  void Accumulate(void* acc, const void* x, size_t count) override;
  void Sgd(const SgdArgs& args) override;
  void Transfer(Queue queue, void* to, const void* from, size_t bytes) override;
  void Record(Queue queue, Mark& mark, const char* purpose) override;
  void Wait(Queue queue, const Mark& mark, const char* purpose) override;
  void WaitOnHost(const Mark& mark, const char* purpose) override;
  void Notify(Queue queue, Notice notice, void* context) override;

 protected:
  std::unique_ptr<Op> Wrap(std::unique_ptr<Op> op) override;

 private:
  size_t allocated_bytes_ = 0;
};

}  // namespace pd
