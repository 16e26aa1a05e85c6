#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"

namespace pd {

/// Passes every call on to a backend: the base of test doubles that look at some, or change some.
class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}

  std::string_view kind() const override { return backend_->kind(); }
  std::string name() const override { return backend_->name(); }
  std::string libraries() const override { return backend_->libraries(); }
  int threads() const override { return backend_->threads(); }
  DType dtype() const override { return backend_->dtype(); }
  Buffer Allocate(size_t bytes) override { return backend_->Allocate(bytes); }
  void Copy(void* to, const void* from, size_t bytes) override { backend_->Copy(to, from, bytes); }
  void ToDense(const Layout& layout, const void* inner, void* dense) override {
    backend_->ToDense(layout, inner, dense);
  }
  void FromDense(const Layout& layout, const void* dense, void* inner) override {
    backend_->FromDense(layout, dense, inner);
  }
  void Accumulate(void* acc, const void* x, size_t count) override {
    backend_->Accumulate(acc, x, count);
  }
  void Sgd(const SgdArgs& args) override { backend_->Sgd(args); }
  void ToHost(const Layout& layout, const void* inner, void* host) override {
    backend_->ToHost(layout, inner, host);
  }
  void FromHost(const Layout& layout, const void* host, void* inner) override {
    backend_->FromHost(layout, host, inner);
  }
  bool on_device() const override { return backend_->on_device(); }
  std::string device_id() const override { return backend_->device_id(); }
  Buffer AllocateStaging(size_t bytes) override { return backend_->AllocateStaging(bytes); }
  void Transfer(Queue queue, void* to, const void* from, size_t bytes) override {
    backend_->Transfer(queue, to, from, bytes);
  }
  std::unique_ptr<Mark> MakeMark() override { return backend_->MakeMark(); }
  void Record(Queue queue, Mark& mark, const char* purpose) override {
    backend_->Record(queue, mark, purpose);
  }
  void Wait(Queue queue, const Mark& mark, const char* purpose) override {
    backend_->Wait(queue, mark, purpose);
  }
  void WaitOnHost(const Mark& mark, const char* purpose) override {
    backend_->WaitOnHost(mark, purpose);
  }
  void Notify(Queue queue, Notice notice, void* context) override {
    backend_->Notify(queue, notice, context);
  }
  void CheckDevice() override { backend_->CheckDevice(); }
  double ElapsedMs(const Mark& from, const Mark& to) const override {
    return backend_->ElapsedMs(from, to);
  }

  std::unique_ptr<Op> PlanConv2d(const Conv2dDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanConv2d(desc, request));
  }
  std::unique_ptr<Op> PlanLinear(const LinearDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanLinear(desc, request));
  }
  std::unique_ptr<Op> PlanPool2d(const Pool2dDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanPool2d(desc, request));
  }
  std::unique_ptr<Op> PlanActivation(Activation desc, const OpRequest& request) override {
    return Wrap(backend_->PlanActivation(desc, request));
  }
  std::unique_ptr<Op> PlanReshape(const Shape& shape, const OpRequest& request) override {
    return Wrap(backend_->PlanReshape(shape, request));
  }
  std::unique_ptr<Op> PlanDropout(const DropoutDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanDropout(desc, request));
  }
  std::unique_ptr<Op> PlanBatchNorm(const BatchNormDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanBatchNorm(desc, request));
  }
  std::unique_ptr<Op> PlanLrn(const LrnDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanLrn(desc, request));
  }
  std::unique_ptr<Op> PlanAdd(const OpRequest& request) override {
    return Wrap(backend_->PlanAdd(request));
  }
  std::unique_ptr<Op> PlanConcat(int64_t axis, const OpRequest& request) override {
    return Wrap(backend_->PlanConcat(axis, request));
  }
  std::unique_ptr<Op> PlanSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc& desc,
                                              const OpRequest& request) override {
    return Wrap(backend_->PlanSoftmaxCrossEntropy(desc, request));
  }
  std::unique_ptr<Op> PlanGelu(const GeluDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanGelu(desc, request));
  }
  std::unique_ptr<Op> PlanEmbedding(const EmbeddingDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanEmbedding(desc, request));
  }
  std::unique_ptr<Op> PlanLayerNorm(const LayerNormDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanLayerNorm(desc, request));
  }
  std::unique_ptr<Op> PlanAttention(const AttentionDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanAttention(desc, request));
  }
  std::unique_ptr<Op> PlanLstm(const LstmDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanLstm(desc, request));
  }
  std::unique_ptr<Op> PlanSlice(const SliceDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanSlice(desc, request));
  }
  std::unique_ptr<Op> PlanPad(const PadDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanPad(desc, request));
  }
  std::unique_ptr<Op> PlanTranspose(const TransposeDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanTranspose(desc, request));
  }
  std::unique_ptr<Op> PlanPositionEmbedding(const OpRequest& request) override {
    return Wrap(backend_->PlanPositionEmbedding(request));
  }
  std::unique_ptr<Op> PlanTimed(const TimedDesc& desc, const OpRequest& request) override {
    return Wrap(backend_->PlanTimed(desc, request));
  }

 protected:
  /// What is given out for an operation that the backend planned.
  virtual std::unique_ptr<Op> Wrap(std::unique_ptr<Op> op) { return op; }
  Backend& inner() const { return *backend_; }

 private:
  std::unique_ptr<Backend> backend_;
};

}  // namespace pd
