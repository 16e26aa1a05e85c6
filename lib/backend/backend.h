#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/op.h"

namespace pd {

/// Memory of a backend; frees itself.
class Buffer {
 public:
  using Deleter = void (*)(void* data, size_t bytes);
  Buffer() = default;
  Buffer(void* data, size_t bytes, Deleter deleter)
      : data_(data), bytes_(bytes), deleter_(deleter) {}
  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) deleter_(data_, bytes_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void Swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(deleter_, other.deleter_);
  }
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Deleter deleter_ = nullptr;
};

/// SGD as PyTorch's: g' = g + weight_decay·w; m' = momentum·m + g'; w' = w - lr·m'. m starts as
/// zeros, so the first m' is g', as in PyTorch.
/// One elementwise pass over `count` stored elements; `w_out` may be `w`, `m` is updated in place.
/// Without momentum (momentum == 0) m may be null and is not read.
struct SgdArgs {
  const void* w = nullptr;
  const void* g = nullptr;
  void* m = nullptr;
  void* w_out = nullptr;
  size_t count = 0;
  double lr = 0, momentum = 0, weight_decay = 0;
};

/// A device with its kernels. One instance a worker (thread): not thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view kind() const = 0;  ///< "ref", "cpu", …
  virtual std::string name() const = 0;       ///< For people: processor or GPU.
  virtual std::string libraries() const = 0;  ///< "oneDNN 2.6.3", …
  virtual int threads() const = 0;
  /// Type of activations and parameters.
  virtual DType dtype() const { return DType::kF32; }

  /// Zeroed memory, 64-byte aligned, touched (no page fault later).
  virtual Buffer Allocate(size_t bytes) = 0;

  virtual void Copy(void* to, const void* from, size_t bytes) = 0;

  /// Between a layout and dense memory of the same dims and dtype. Exact.
  virtual void ToDense(const Layout& layout, const void* inner, void* dense) = 0;
  virtual void FromDense(const Layout& layout, const void* dense, void* inner) = 0;

  /// acc[i] += x[i], elements of dtype().
  virtual void Accumulate(void* acc, const void* x, size_t count) = 0;
  /// One term of the weighted sum over replicas: acc[i] = (first ? 0 : acc[i]) + x[i]·scale, the
  /// product rounded before the sum; `first` stores the product. acc may be x when first.
  /// Stateless: a communication thread may call it while this backend's own thread computes.
  virtual void AddScaled(void* acc, const void* x, float scale, bool first, size_t count) = 0;
  virtual void Sgd(const SgdArgs& args) = 0;

  // Each plan validates and chooses, or throws kDevice saying why it cannot. It never falls back in
  // silence.
  virtual std::unique_ptr<Op> PlanConv2d(const Conv2dDesc&, const OpRequest&) = 0;
  virtual std::unique_ptr<Op> PlanLinear(const LinearDesc&, const OpRequest&) = 0;
  virtual std::unique_ptr<Op> PlanPool2d(const Pool2dDesc&, const OpRequest&) = 0;
  virtual std::unique_ptr<Op> PlanActivation(Activation, const OpRequest&) = 0;
  /// [N, d1, d2, …] → [N, d1·d2·…], dense row-major order.
  virtual std::unique_ptr<Op> PlanFlatten(const OpRequest&) = 0;
  virtual std::unique_ptr<Op> PlanDropout(const DropoutDesc&, const OpRequest&) = 0;
  virtual std::unique_ptr<Op> PlanBatchNorm(const BatchNormDesc&, const OpRequest&) = 0;
  virtual std::unique_ptr<Op> PlanLrn(const LrnDesc&, const OpRequest&) = 0;
  /// Sum of two or more inputs, in order.
  virtual std::unique_ptr<Op> PlanAdd(const OpRequest&) = 0;
  /// Along dimension 1 (channels or features).
  virtual std::unique_ptr<Op> PlanConcat(const OpRequest&) = 0;
  virtual std::unique_ptr<Op> PlanSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc&,
                                                      const OpRequest&) = 0;
};

/// Makes a backend for the calling thread.
/// kind: "ref", "ref64" (double, for tests), "cpu", "auto" (cpu). Refuses others with the list.
std::unique_ptr<Backend> MakeBackend(std::string_view kind, int threads);

}  // namespace pd
