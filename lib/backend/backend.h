#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/device.h"
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
  /// Which one it is, for people: "cpu", "cuda:1 NVIDIA H200".
  virtual std::string label() const { return std::string(kind()); }
  /// The processor's instructions that kernels and layouts are chosen for, in the words of
  /// oneDNN's DNNL_MAX_CPU_ISA; "" where it does not matter.
  virtual std::string instructions() const { return {}; }
  /// Type of activations and parameters.
  virtual DType dtype() const { return DType::kF32; }

  /// Zeroed memory, 64-byte aligned, touched (no page fault later).
  virtual Buffer Allocate(size_t bytes) = 0;

  // Calls below are work of the compute queue, on this backend's memory.
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  /// Between a layout and dense memory of the same dims and dtype. Exact.
  virtual void ToDense(const Layout& layout, const void* inner, void* dense) = 0;
  virtual void FromDense(const Layout& layout, const void* dense, void* inner) = 0;
  /// acc[i] += x[i], elements of dtype().
  virtual void Accumulate(void* acc, const void* x, size_t count) = 0;
  virtual void Sgd(const SgdArgs& args) = 0;

  /// As ToDense and FromDense, but the dense side is any memory of the host, and all is done on
  /// return: for set-up, drains and tests.
  virtual void ToHost(const Layout& layout, const void* inner, void* host) {
    ToDense(layout, inner, host);
  }
  virtual void FromHost(const Layout& layout, const void* host, void* inner) {
    FromDense(layout, host, inner);
  }

  // ---- Devices with memory of their own. Their calls only queue work; what moves and who waits
  // for whom is said here. On a host backend all of it is done at once, and staging memory is its
  // own memory, so that one code serves both.

  /// Whether the memory is a device's, which the host cannot touch.
  virtual bool on_device() const { return false; }
  /// What tells one device of a machine from another (a GPU's PCI address); "" on host backends.
  virtual std::string device_id() const { return {}; }
  /// The device's memory that this backend has allocated so far, for itself, for operations and for
  /// Allocate's callers; 0 on host backends. What libraries take for themselves is not in it.
  virtual size_t device_bytes() const { return 0; }
  /// Host memory for Transfer (pinned). Zeroed, 64-byte aligned.
  virtual Buffer AllocateStaging(size_t bytes) { return Allocate(bytes); }
  /// Queues a copy between staging and device memory; nothing where both are one.
  virtual void Transfer(Queue queue, void* to, const void* from, size_t bytes);
  virtual std::unique_ptr<Mark> MakeMark() { return std::make_unique<Mark>(); }
  /// `purpose` says to the reader what the edge is for; tests leave them out one at a time by it.
  virtual void Record(Queue queue, Mark& mark, const char* purpose);
  /// The queue, or the host, goes on only when the mark's latest record is reached.
  virtual void Wait(Queue /*queue*/, const Mark& /*mark*/, const char* /*purpose*/) {}
  virtual void WaitOnHost(const Mark& /*mark*/, const char* /*purpose*/) {}
  /// Calls `notice` when the queue's work so far is done; never on a device that has failed.
  virtual void Notify(Queue /*queue*/, Notice notice, void* context) { notice(context); }
  /// Throws kDevice when the device has failed. Waits for nothing.
  virtual void CheckDevice() {}
  /// Between two records that were waited for.
  virtual double ElapsedMs(const Mark& from, const Mark& to) const;

  // Each plan validates and chooses, or throws kInvalidInput saying what this device cannot do. It
  // never falls back in silence. The default refuses (RefuseLayer): a backend overrides what it
  // has.
  virtual std::unique_ptr<Op> PlanConv2d(const Conv2dDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanLinear(const LinearDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanPool2d(const Pool2dDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanActivation(Activation, const OpRequest&);
  /// To [N, shape], dense row-major order.
  virtual std::unique_ptr<Op> PlanReshape(const Shape& shape, const OpRequest&);
  virtual std::unique_ptr<Op> PlanDropout(const DropoutDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanBatchNorm(const BatchNormDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanLrn(const LrnDesc&, const OpRequest&);
  /// Sum of two or more inputs, in order.
  virtual std::unique_ptr<Op> PlanAdd(const OpRequest&);
  /// Along dimension `axis`; 1: channels or features.
  virtual std::unique_ptr<Op> PlanConcat(int64_t axis, const OpRequest&);
  virtual std::unique_ptr<Op> PlanSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc&,
                                                      const OpRequest&);
  virtual std::unique_ptr<Op> PlanGelu(const GeluDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanEmbedding(const EmbeddingDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanLayerNorm(const LayerNormDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanAttention(const AttentionDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanLstm(const LstmDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanSlice(const SliceDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanPad(const PadDesc&, const OpRequest&);
  virtual std::unique_ptr<Op> PlanTranspose(const TransposeDesc&, const OpRequest&);
  /// x [N, …] plus a parameter `weight` of the shape of one sample.
  virtual std::unique_ptr<Op> PlanPositionEmbedding(const OpRequest&);
  /// Of device `timed` only.
  virtual std::unique_ptr<Op> PlanTimed(const TimedDesc&, const OpRequest&);

 protected:
  /// Always throws kInvalidInput: this device has no layers of `type`.
  virtual std::unique_ptr<Op> RefuseLayer(std::string_view type) const;
};

struct BackendOptions {
  int threads = 1;
  int local_rank = 0;  ///< This worker's place among those of its machine: chooses the GPU.
  /// On a GPU: factors in convolutions, linear layers, attention and lstm may be rounded to TF32
  /// (10 bits).
  bool tf32 = false;
  /// On a GPU: the most scratch memory that one operation may ask for.
  size_t workspace_limit_bytes = size_t{256} << 20;
};

/// Makes a backend for the calling thread.
/// kind: "ref", "ref64" (double, for tests, not in lists), "cpu", "cuda" (GPU local_rank modulo
/// their number), "cuda:N", "auto" (a GPU where there is one, else cpu: kind() says what was
/// taken). Refuses others, and a GPU where there is none, with the list.
std::unique_ptr<Backend> MakeBackend(std::string_view kind, const BackendOptions& options);
inline std::unique_ptr<Backend> MakeBackend(std::string_view kind, int threads) {
  return MakeBackend(kind, BackendOptions{.threads = threads, .local_rank = 0});
}

}  // namespace pd
