#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/dense_inputs.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/vectorize.h"

// A matrix product for each sample and head, on the columns where they lie. A thread computes whole
// products, so that results do not depend on the number of threads. oneDNN's batched matmul runs
// the same products, no faster.

namespace pd::cpu {
namespace {

/// Rows of `step` elements from one to the next.
struct Matrix {
  const float* data;
  int64_t step;
};
struct Result {
  float* data;
  int64_t step;
};

/// A product of `rows` by `columns`, its sums over `inner`; an operand may be stored transposed.
struct Product {
  char transpose_a, transpose_b;
  int64_t rows, columns, inner;

  void Run(float scale, Matrix a, Matrix b, Result c) const {
    const dnnl_status_t status = dnnl_sgemm(transpose_a, transpose_b, rows, columns, inner, scale,
                                            a.data, a.step, b.data, b.step, 0.0F, c.data, c.step);
    if (status != dnnl_success) {
      Throw(ErrorCode::kDevice, "oneDNN: sgemm failed with status {}", static_cast<int>(status));
    }
  }
};

/// Σ a·b in 16 sums side by side, so that it does not depend on the vector width of the processor.
[[gnu::always_inline]] inline float Dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t kLanes = 16;
  std::array<float, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  for (int64_t l = 0; i < count; ++i, ++l) lanes[l] += a[i] * b[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

/// For each row, in place: ds = p·(dp - Σ p·dp)·scale.
PD_CLONES void SoftmaxBackward(const float* p, float* dp, int64_t rows, int64_t count,
                               float scale) {
  for (int64_t row = 0; row < rows; ++row, p += count, dp += count) {
    const float mean = Dot(p, dp, count);
    PD_INDEPENDENT
    for (int64_t j = 0; j < count; ++j) dp[j] = p[j] * (dp[j] - mean) * scale;
  }
}

/// Keeps the probabilities, [N, heads, T, T].
class Attention : public CpuOp {
 public:
  Attention(const Context& context, const AttentionDesc& desc, const OpRequest& request)
      : CpuOp(context), desc_(desc) {
    const Shape& x = request.x.at(0).dims;
    PD_CHECK(x.size() == 3 && desc.heads > 0 && x[2] % (3 * desc.heads) == 0,
             "attention: {} heads of {}", desc.heads, ToString(x));
    steps_ = x[1];
    width_ = x[2] / 3;
    head_ = width_ / desc.heads;
    pairs_ = x[0] * desc.heads;
    scale_ = static_cast<float>(1 / std::sqrt(static_cast<double>(head_)));
    info_.y = DenseLayout({x[0], steps_, width_}, DType::kF32);
    info_.saved_bytes = static_cast<size_t>(pairs_ * steps_ * steps_) * sizeof(float);
    info_.backward_reads_x = true;

    const dnnl::softmax_forward::primitive_desc softmax(
        {dnnl::prop_kind::forward_training, PlainDesc({pairs_ * steps_, steps_}), 1},
        UserScratchpad(), context.engine);
    softmax_ = Add(softmax, {{DNNL_ARG_SRC}, {DNNL_ARG_DST, {}, true}});
    // The gradient of the scores, one a thread.
    const int64_t at_once = std::min<int64_t>(context.threads, pairs_);
    info_.workspace_bytes = std::max(
        info_.workspace_bytes, static_cast<size_t>(at_once * steps_ * steps_) * sizeof(float));
  }

  void Forward(const OpArgs& args) override {
    const float* x = Floats(args.x[0]);
    float* probabilities = Floats(args.saved);
    const Product scores{'N', 'T', steps_, steps_, head_};
    const Product values{'N', 'N', steps_, head_, steps_};
    ForEachPair([&](int64_t pair) {
      const float* q = x + Offset(pair, 3);
      float* p = probabilities + pair * steps_ * steps_;
      scores.Run(scale_, {q, 3 * width_}, {q + width_, 3 * width_}, {p, steps_});
      if (desc_.causal) HideLater(p);
    });
    softmax_->Run({probabilities, probabilities}, args.workspace);
    ForEachPair([&](int64_t pair) {
      const float* v = x + Offset(pair, 3) + 2 * width_;
      const float* p = probabilities + pair * steps_ * steps_;
      values.Run(1, {p, steps_}, {v, 3 * width_}, {Floats(args.y) + Offset(pair, 1), width_});
    });
  }

  /// dv = pᵀ·dy; dp = dy·vᵀ; ds from it; dq = ds·k; dk = dsᵀ·q.
  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    const Product scores{'N', 'T', steps_, steps_, head_};
    const Product across{'N', 'N', steps_, head_, steps_};
    const Product down{'T', 'N', steps_, head_, steps_};
    ForEachPair([&](int64_t pair) {
      const float* q = Floats(args.x[0]) + Offset(pair, 3);
      const Matrix dy{Floats(args.dy) + Offset(pair, 1), width_};
      const Matrix p{Floats(args.saved) + pair * steps_ * steps_, steps_};
      float* dq = Floats(args.dx[0]) + Offset(pair, 3);
      float* ds = Floats(args.workspace) + omp_get_thread_num() * steps_ * steps_;
      const int64_t row = 3 * width_;
      down.Run(1, p, dy, {dq + 2 * width_, row});
      scores.Run(1, dy, {q + 2 * width_, row}, {ds, steps_});
      SoftmaxBackward(p.data, ds, steps_, steps_, scale_);
      across.Run(1, {ds, steps_}, {q + width_, row}, {dq, row});
      down.Run(1, {ds, steps_}, {q, row}, {dq + width_, row});
    });
  }

 private:
  template <typename F>
  void ForEachPair(F f) const {
    ForRanges(context_.threads, pairs_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t pair = begin; pair < end; ++pair) f(pair);
    });
  }

  /// Where a head's first columns of a sample begin; `parts`: how often a row holds all heads'.
  int64_t Offset(int64_t pair, int64_t parts) const {
    return pair / desc_.heads * steps_ * parts * width_ + pair % desc_.heads * head_;
  }

  void HideLater(float* scores) const {
    for (int64_t i = 0; i < steps_; ++i, scores += steps_) {
      std::fill(scores + i + 1, scores + steps_, -std::numeric_limits<float>::infinity());
    }
  }

  AttentionDesc desc_;
  int64_t steps_ = 0, width_ = 0, head_ = 0;
  int64_t pairs_ = 0;  ///< Of a sample and a head.
  float scale_ = 1;
  Kernel* softmax_ = nullptr;
};

}  // namespace

std::unique_ptr<Op> MakeAttention(const Context& context, const AttentionDesc& desc,
                                  const OpRequest& request) {
  return OnDenseInputs(context, request, [&](const OpRequest& dense) {
    return std::make_unique<Attention>(context, desc, dense);
  });
}

}  // namespace pd::cpu
