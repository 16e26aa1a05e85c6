#include "pipeline/watched_backend.h"

#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> watching{false};
std::atomic<int64_t> by_us{0}, by_kernels{0};
std::atomic<bool (*)()> ignored{[] { return false; }};
thread_local bool in_kernel = false;

void* Counted(size_t bytes, size_t alignment) noexcept {
  if (watching.load(std::memory_order_relaxed) && !ignored.load(std::memory_order_relaxed)()) {
    ++(in_kernel ? by_kernels : by_us);
  }
  if (bytes == 0) bytes = 1;
  if (alignment == 0) return std::malloc(bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* Checked(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The other forms of new and delete call these. Not inlined: GCC would see free() meet operator
// new.
void* operator new(size_t bytes) { return Checked(Counted(bytes, 0)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Counted(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Checked(Counted(bytes, static_cast<size_t>(alignment)));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace pd {
namespace {

class InKernel {
 public:
  InKernel() { in_kernel = true; }
  ~InKernel() { in_kernel = false; }
  InKernel(const InKernel&) = delete;
  InKernel& operator=(const InKernel&) = delete;
};

class WatchedOp final : public Op {
 public:
  explicit WatchedOp(std::unique_ptr<Op> op) : op_(std::move(op)) { info_ = op_->info(); }
  void Prepare() override { op_->Prepare(); }
  void Forward(const OpArgs& args) override {
    const InKernel here;
    op_->Forward(args);
  }
  void BackwardData(const OpArgs& args) override {
    const InKernel here;
    op_->BackwardData(args);
  }
  void BackwardWeights(const OpArgs& args) override {
    const InKernel here;
    op_->BackwardWeights(args);
  }

 private:
  std::unique_ptr<Op> op_;
};

}  // namespace

void WatchAllocations(bool on) {
  if (on) by_us = by_kernels = 0;
  watching = on;
}

void IgnoreAllocationsWhile(bool (*inside)()) { ignored = inside; }

Allocations CountedAllocations() { return {.ours = by_us, .kernels = by_kernels}; }

void WatchedBackend::Copy(void* to, const void* from, size_t bytes) {
  const InKernel here;
  ForwardingBackend::Copy(to, from, bytes);
}
void WatchedBackend::ToDense(const Layout& layout, const void* inner, void* dense) {
  const InKernel here;
  ForwardingBackend::ToDense(layout, inner, dense);
}
void WatchedBackend::FromDense(const Layout& layout, const void* dense, void* inner) {
  const InKernel here;
  ForwardingBackend::FromDense(layout, dense, inner);
}
void WatchedBackend::Accumulate(void* acc, const void* x, size_t count) {
  const InKernel here;
  ForwardingBackend::Accumulate(acc, x, count);
}
void WatchedBackend::Sgd(const SgdArgs& args) {
  const InKernel here;
  ForwardingBackend::Sgd(args);
}
void WatchedBackend::Transfer(Queue queue, void* to, const void* from, size_t bytes) {
  const InKernel here;
  ForwardingBackend::Transfer(queue, to, from, bytes);
}
void WatchedBackend::Record(Queue queue, Mark& mark, const char* purpose) {
  const InKernel here;
  ForwardingBackend::Record(queue, mark, purpose);
}
void WatchedBackend::Wait(Queue queue, const Mark& mark, const char* purpose) {
  const InKernel here;
  ForwardingBackend::Wait(queue, mark, purpose);
}
void WatchedBackend::WaitOnHost(const Mark& mark, const char* purpose) {
  const InKernel here;
  ForwardingBackend::WaitOnHost(mark, purpose);
}
void WatchedBackend::Notify(Queue queue, Notice notice, void* context) {
  const InKernel here;
  ForwardingBackend::Notify(queue, notice, context);
}
std::unique_ptr<Op> WatchedBackend::Wrap(std::unique_ptr<Op> op) {
  return std::make_unique<WatchedOp>(std::move(op));
}

}  // namespace pd
