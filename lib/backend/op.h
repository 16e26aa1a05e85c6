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
  /// Of that description, 0 when dense: equal where every element has the same place in memory, in
  /// other processes and on other machines too.
  uint64_t inner_digest = 0;

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

/// y = x·Φ(x), Φ the normal distribution's; or its approximation by tanh, ½x·(1 + tanh(√(2/π)·(x +
/// 0.044715·x³))). Backward reads x.
struct GeluDesc {
  bool tanh = false;
};

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

/// What a loss tells of each sample: the columns of its y [N, kLossColumns], in the backend's type.
/// Targets that are kIgnoredTarget count nowhere.
enum LossColumn : uint8_t {
  kLossSum,      ///< Σ of the targets' losses, not weighted.
  kLossCounted,  ///< Targets counted.
  kLossRight,  ///< Of them, those predicted: no logit is larger, or equal and of an earlier class.
  kLossTop5,   ///< Of them, those of which that holds for at most four logits.
  kLossColumns
};

/// Inputs logits [N, T…, C] and targets [N, T…] i32, 0 to C-1 or kIgnoredTarget → y [N,
/// kLossColumns]. BackwardData: dlogits = weight/(N·ΠT) · (softmax - onehot) for counted targets,
/// 0 for others: a counted target weighs the same whatever its minibatch or replica. Differs from
/// PyTorch, which divides by the number of counted ones; the same where all are counted.
struct SoftmaxCrossEntropyDesc {
  float weight = 1;
};

/// x i32 [N, …] → [N, …, dim]: rows of weight [count, dim]. dweight sums the rows of dy in the
/// order of the elements of x.
struct EmbeddingDesc {
  int64_t count = 0, dim = 0;
};

/// Over the last dimension of x [N, …, D]: y = (x - mean) / √(variance + eps) · weight + bias, the
/// biased variance. Params weight, bias [D].
struct LayerNormDesc {
  double eps = 1e-5;
};

/// x [N, T, 3·D], of each position its query, key and value, D each, a head's D/heads columns side
/// by side → y [N, T, D]: softmax(q·kᵀ / √(D/heads))·v for each head; with `causal` a position
/// sees itself and earlier ones.
struct AttentionDesc {
  int64_t heads = 1;
  bool causal = false;
};

/// PyTorch's nn.LSTM(batch_first): inputs x [N, T, F] and, optionally, the initial state
/// [N, 2·layers, hidden] (h of each layer, then c of each; zeros without) → y [N, T, hidden] or,
/// with return_state, [N, T + 2·layers, hidden]: the last layer's h of each step, then the final
/// state in the form of the initial one. Params, for each layer l: weight_ih_l [4·hidden, in],
/// weight_hh_l [4·hidden, hidden], bias_ih_l, bias_hh_l [4·hidden], gates in the order i, f, g, o.
struct LstmDesc {
  int64_t hidden = 0, layers = 1;
  bool return_state = false;
};

/// Elements [begin, end) along dimension `axis` (the minibatch is 0).
struct SliceDesc {
  int64_t axis = 1, begin = 0, end = 0;
};

/// Zeros around x: before[d] and after[d] of them in dimension d; the minibatch's entries are 0.
struct PadDesc {
  Shape before, after;
};

/// Dimension d of y is dimension axes[d] of x; axes[0] is 0.
struct TransposeDesc {
  std::vector<int64_t> axes;
};

/// A layer that takes its time and computes nothing (device `timed`). Times in ms, for one
/// minibatch whatever its size; `output` without the minibatch dimension; a loss writes zeros.
struct TimedDesc {
  double forward_ms = 0, backward_ms = 0, update_ms = 0;
  Shape output, parameters;  ///< `parameters` empty: none.
};

}  // namespace pd
