#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace pd {

/// How a backend stores one tensor. A backend may choose a layout of its own inside a stage
/// (oneDNN's blocked formats); borders, checkpoints and `ref` are plain dense, row-major, NCHW.
struct Layout {
  Shape dims;  ///< Logical extents; activations: minibatch first.
  DType dtype = DType::kF32;
  size_t bytes =
      0;  ///< Memory needed; more than the elements when an inner layout pads (with zeros).
  std::shared_ptr<const void> inner = nullptr;  ///< The backend's own description; null when dense.

  bool dense() const { return inner == nullptr; }
  /// Stored elements, padding included: what element-wise work on the raw memory runs over.
  size_t stored() const { return bytes / SizeOf(dtype); }
};

/// A dense layout.
inline Layout DenseLayout(Shape dims, DType dtype) {
  Layout layout{.dims = std::move(dims), .dtype = dtype};
  layout.bytes = static_cast<size_t>(Elements(layout.dims)) * SizeOf(dtype);
  return layout;
}

/// What a layer asks of a backend when an operation is planned.
struct OpRequest {
  std::vector<Layout> x;       ///< The inputs as their producers store them, minibatch first.
  std::vector<bool> wants_dx;  ///< For each input: will BackwardData be asked for its gradient?
  /// Layouts that the trainable parameters have already (planned at another minibatch size); empty:
  /// the operation chooses. A parameter, its gradient and its momentum share one layout.
  std::vector<Layout> params;

  int64_t batch() const { return x.at(0).dims.at(0); }
};

/// What a planned operation needs and promises.
struct OpInfo {
  Layout y;                    ///< The output; its gradient has the same layout.
  std::vector<Layout> params;  ///< Trainable parameters, in the layer's order.
  size_t saved_bytes = 0;  ///< Private state from Forward to the backward of the same minibatch.
  size_t workspace_bytes = 0;     ///< Scratch for one call; nothing survives in it.
  bool backward_reads_x = false;  ///< Some backward call reads OpArgs::x.
  bool backward_reads_y = false;  ///< Some backward call reads OpArgs::y.
};

/// The memory of one call. Pointers are to the backend's memory, 64-byte aligned; x, y and the rest
/// never overlap.
struct OpArgs {
  std::span<const void* const> x;       ///< Inputs, in the layouts of the request.
  void* y = nullptr;                    ///< Forward writes it; backward may read it.
  const void* dy = nullptr;             ///< Gradient of y; null for a loss, which starts from 1.
  std::span<void* const> dx;            ///< BackwardData overwrites each entry that is not null.
  std::span<const void* const> params;  ///< Trainable parameters: the version of this minibatch.
  std::span<void* const> dparams;       ///< Overwritten with this minibatch's gradient.
  std::span<void* const> state;  ///< Running statistics, dense; Forward in training updates them.
  void* saved = nullptr;
  void* workspace = nullptr;
  float* correct =
      nullptr;             ///< A loss writes, per sample, 1 where its prediction is right, else 0.
  uint64_t minibatch = 0;  ///< Number over the whole run, from 0: keys dropout masks.
  bool training = true;
};

/// One operation planned for one minibatch size. Calls never allocate, look up or synchronise, and
/// keep nothing between them: weights, saved state and scratch are arguments, so any number of
/// minibatches may be in flight.
class Op {
 public:
  virtual ~Op() = default;
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  const OpInfo& info() const { return info_; }

  /// Builds the kernels. Called once before the first call, and only for layers that this worker
  /// runs.
  virtual void Prepare() {}
  virtual void Forward(const OpArgs& args) = 0;
  /// Gradients of the inputs. Where it is wanted it comes before BackwardWeights and has dparams
  /// set, so that an operation whose gradients are one kernel (batch norm) computes both here; such
  /// a one does nothing in BackwardWeights unless no dx was requested.
  virtual void BackwardData(const OpArgs& args) = 0;
  /// Gradients of the parameters; called only when there are any.
  virtual void BackwardWeights(const OpArgs& /*args*/) {}

 protected:
  Op() = default;
  OpInfo info_;
};

// ---- What the operations are. [h, w] pairs where two numbers.
// -------------------------------------

struct Conv2dDesc {
  int64_t out_channels = 0;
  std::array<int64_t, 2> kernel{}, stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int64_t groups = 1;
  bool bias = true;
};

struct LinearDesc {
  int64_t out_features = 0;
  bool bias = true;
};

/// Pooling. `out` is the output's [h, w], computed by the layer (the one place with the rounding
/// rule). Average: the divisor is the window clipped to the padded input with count_include_pad, to
/// the real input without (PyTorch's rule). Max: ties give the gradient to the first maximum in
/// row-major order.
struct Pool2dDesc {
  enum class Kind { kMax, kAverage };
  Kind kind = Kind::kMax;
  std::array<int64_t, 2> kernel{}, stride{}, padding{}, out{};
  bool count_include_pad = true;
};

enum class Activation { kRelu, kTanh, kSigmoid };

/// y = x / (1 - p) where kept (DropoutKeeps in base/random.h, dense row-major element index inside
/// the minibatch), else 0; in evaluation y = x.
struct DropoutDesc {
  float p = 0.5F;
  uint64_t key = 0;  ///< Hash of seed and layer name.
};

/// Params weight, bias [C]; state running_mean, running_var [C]. x [N,C] or [N,C,H,W]. Training
/// uses the minibatch's biased variance; running = (1-momentum)·running + momentum·new, new
/// variance unbiased, m/max(1, m-1) for m values a channel (so a single value is defined, unlike in
/// PyTorch).
struct BatchNormDesc {
  double eps = 1e-5, momentum = 0.1;
};

/// y = x · (k + alpha/size · Σ x²)^-beta over `size` channels centred on this one.
struct LrnDesc {
  int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, k = 1;
};

/// Inputs logits [N,C] and label [N] i32 → y [N], the loss of each sample (not weighted), and
/// OpArgs::correct. BackwardData: dlogits = weight/N · (softmax - onehot).
struct SoftmaxCrossEntropyDesc {
  float weight = 1;
};

/// A layer that takes its time and computes nothing (device `timed`). Times in ms, for one
/// minibatch whatever its size; `output` without the minibatch dimension; a loss writes zeros.
struct TimedDesc {
  double forward_ms = 0, backward_ms = 0, update_ms = 0;
  Shape output, parameters;  ///< `parameters` empty: none.
};

}  // namespace pd
