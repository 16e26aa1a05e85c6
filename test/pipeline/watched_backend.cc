#include "pipeline/watched_backend.h"

#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> watching{false};
std::atomic<int64_t> by_us{0}, by_kernels{0};
thread_local bool in_kernel = false;

void* Counted(size_t bytes, size_t alignment) noexcept {
  if (watching.load(std::memory_order_relaxed)) ++(in_kernel ? by_kernels : by_us);
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

std::unique_ptr<Op> Watched(std::unique_ptr<Op> op) {
  return std::make_unique<WatchedOp>(std::move(op));
}

}  // namespace

void WatchAllocations(bool on) {
  if (on) by_us = by_kernels = 0;
  watching = on;
}

Allocations CountedAllocations() { return {.ours = by_us, .kernels = by_kernels}; }

void WatchedBackend::Copy(void* to, const void* from, size_t bytes) {
  const InKernel here;
  backend_->Copy(to, from, bytes);
}
void WatchedBackend::ToDense(const Layout& layout, const void* inner, void* dense) {
  const InKernel here;
  backend_->ToDense(layout, inner, dense);
}
void WatchedBackend::FromDense(const Layout& layout, const void* dense, void* inner) {
  const InKernel here;
  backend_->FromDense(layout, dense, inner);
}
void WatchedBackend::Accumulate(void* acc, const void* x, size_t count) {
  const InKernel here;
  backend_->Accumulate(acc, x, count);
}
void WatchedBackend::Sgd(const SgdArgs& args) {
  const InKernel here;
  backend_->Sgd(args);
}
std::unique_ptr<Op> WatchedBackend::PlanConv2d(const Conv2dDesc& desc, const OpRequest& request) {
  return Watched(backend_->PlanConv2d(desc, request));
}
std::unique_ptr<Op> WatchedBackend::PlanLinear(const LinearDesc& desc, const OpRequest& request) {
  return Watched(backend_->PlanLinear(desc, request));
}
std::unique_ptr<Op> WatchedBackend::PlanPool2d(const Pool2dDesc& desc, const OpRequest& request) {
  return Watched(backend_->PlanPool2d(desc, request));
}
std::unique_ptr<Op> WatchedBackend::PlanActivation(Activation desc, const OpRequest& request) {
  return Watched(backend_->PlanActivation(desc, request));
}
std::unique_ptr<Op> WatchedBackend::PlanFlatten(const OpRequest& request) {
  return Watched(backend_->PlanFlatten(request));
}
std::unique_ptr<Op> WatchedBackend::PlanDropout(const DropoutDesc& desc, const OpRequest& request) {
  return Watched(backend_->PlanDropout(desc, request));
}
std::unique_ptr<Op> WatchedBackend::PlanBatchNorm(const BatchNormDesc& desc,
                                                  const OpRequest& request) {
  return Watched(backend_->PlanBatchNorm(desc, request));
}
std::unique_ptr<Op> WatchedBackend::PlanLrn(const LrnDesc& desc, const OpRequest& request) {
  return Watched(backend_->PlanLrn(desc, request));
}
std::unique_ptr<Op> WatchedBackend::PlanAdd(const OpRequest& request) {
  return Watched(backend_->PlanAdd(request));
}
std::unique_ptr<Op> WatchedBackend::PlanConcat(const OpRequest& request) {
  return Watched(backend_->PlanConcat(request));
}
std::unique_ptr<Op> WatchedBackend::PlanSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc& desc,
                                                            const OpRequest& request) {
  return Watched(backend_->PlanSoftmaxCrossEntropy(desc, request));
}

}  // namespace pd
