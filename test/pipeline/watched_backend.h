#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "backend/backend.h"

namespace pd {

/// Calls of operator new in all threads of the program while watching is on: those that kernels
/// made (inside calls of a WatchedBackend), and all others.
struct Allocations {
  int64_t ours = 0, kernels = 0;
};
void WatchAllocations(bool on);
Allocations CountedAllocations();  ///< Since watching was last switched on.

/// Passes everything on to a backend, adds up the memory that it is asked for, and marks the time
/// inside its kernels.
class WatchedBackend final : public Backend {
 public:
  explicit WatchedBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  size_t allocated_bytes() const { return allocated_bytes_; }

  std::string_view kind() const override { return backend_->kind(); }
  std::string name() const override { return backend_->name(); }
  std::string libraries() const override { return backend_->libraries(); }
  int threads() const override { return backend_->threads(); }
  DType dtype() const override { return backend_->dtype(); }
  Buffer Allocate(size_t bytes) override {
    allocated_bytes_ += bytes;
    return backend_->Allocate(bytes);
  }
  void Copy(void* to, const void* from, size_t bytes) override;
  void ToDense(const Layout& layout, const void* inner, void* dense) override;
  void FromDense(const Layout& layout, const void* dense, void* inner) override;
  void Accumulate(void* acc, const void* x, size_t count) override;
  void Sgd(const SgdArgs& args) override;
  std::unique_ptr<Op> PlanConv2d(const Conv2dDesc& desc, const OpRequest& request) override;
  std::unique_ptr<Op> PlanLinear(const LinearDesc& desc, const OpRequest& request) override;
  std::unique_ptr<Op> PlanPool2d(const Pool2dDesc& desc, const OpRequest& request) override;
  std::unique_ptr<Op> PlanActivation(Activation desc, const OpRequest& request) override;
  std::unique_ptr<Op> PlanFlatten(const OpRequest& request) override;
  std::unique_ptr<Op> PlanDropout(const DropoutDesc& desc, const OpRequest& request) override;
  std::unique_ptr<Op> PlanBatchNorm(const BatchNormDesc& desc, const OpRequest& request) override;
  std::unique_ptr<Op> PlanLrn(const LrnDesc& desc, const OpRequest& request) override;
  std::unique_ptr<Op> PlanAdd(const OpRequest& request) override;
  std::unique_ptr<Op> PlanConcat(const OpRequest& request) override;
  std::unique_ptr<Op> PlanSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc& desc,
                                              const OpRequest& request) override;

 private:
  std::unique_ptr<Backend> backend_;
  size_t allocated_bytes_ = 0;
};

}  // namespace pd
