#include <algorithm>
#include <cmath>

#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

// A product for each sample and head, on the columns where they lie. One stride leads from head to
// head or from sample to sample, not both: a call of cuBLAS takes all of the one, and there are as
// many calls as of the other, the fewer. Nothing is copied, and no pointers are written.

namespace pd::cuda {
namespace {

/// A row-major matrix for each sample and head: elements from one row, sample or head to the next.
template <typename T>
struct Matrices {
  T* data;
  int row;
  int64_t sample, head;
};

/// c = scale·op(a)·op(b), c of `rows` by `columns`.
struct Product {
  cublasOperation_t a, b;
  int rows, columns, inner;
  float scale;
};

/// Keeps the probabilities, [N, heads, T, T].
class Attention : public CudaOp {
 public:
  Attention(const Context& context, const AttentionDesc& desc, const OpRequest& request)
      : CudaOp(context), causal_(desc.causal) {
    const Shape& x = DenseInput(request, 0, "attention").dims;
    PD_CHECK(x.size() == 3 && desc.heads > 0 && x[2] % (3 * desc.heads) == 0,
             "attention: {} heads of {}", desc.heads, ToString(x));
    samples_ = ToInt(x[0], "attention", "the number of samples");
    heads_ = ToInt(desc.heads, "attention", "the number of heads");
    steps_ = ToInt(x[1], "attention", "the number of positions");
    row_ = ToInt(x[2], "attention", "the number of inputs");
    width_ = row_ / 3;
    head_ = width_ / heads_;
    scale_ = static_cast<float>(1 / std::sqrt(static_cast<double>(head_)));
    info_.y = DenseLayout({x[0], x[1], width_}, DType::kF32);
    const size_t sample_bytes = static_cast<size_t>(ScoresOf(1)) * sizeof(float);
    const size_t limit = context.workspace_limit_bytes();
    if (sample_bytes > limit) {
      Throw(ErrorCode::kInvalidInput,
            "attention: a sample's scores take {} of {} bytes of workspace", sample_bytes, limit);
    }
    at_once_ = static_cast<int>(std::min(limit / sample_bytes, static_cast<size_t>(samples_)));
    info_.workspace_bytes = static_cast<size_t>(at_once_) * sample_bytes;
    info_.saved_bytes = static_cast<size_t>(samples_) * sample_bytes;
    info_.backward_reads_x = true;
  }

  void Forward(const OpArgs& args) override {
    const float* q = Floats(args.x[0]);
    const Matrices<float> p = Scores(Floats(args.saved));
    Multiply(samples_, {kAsIs, kTurned, steps_, steps_, head_, scale_}, Packed(q),
             Packed(q + width_), p);
    PD_CUDA(LaunchScoreSoftmax(p.data, ShapeOf(samples_), stream()));
    Multiply(samples_, {kAsIs, kAsIs, steps_, head_, steps_, 1}, Const(p), Packed(q + 2 * width_),
             Output(Floats(args.y)));
  }

  /// As many samples at a time as the workspace holds the scores' gradients of.
  void BackwardData(const OpArgs& args) override {
    for (int first = 0; first < samples_; first += at_once_) {
      const int64_t steps = int64_t{first} * steps_;
      BackwardSamples(std::min(at_once_, samples_ - first), Floats(args.x[0]) + steps * row_,
                      Floats(args.saved) + ScoresOf(first), Floats(args.dy) + steps * width_,
                      Floats(args.dx[0]) + steps * row_, Floats(args.workspace));
    }
  }

 private:
  static constexpr cublasOperation_t kAsIs = CUBLAS_OP_N, kTurned = CUBLAS_OP_T;

  /// With p the probabilities and s the scores: dv = pᵀ·dy; dp = dy·vᵀ; ds from it, in its place;
  /// dq = ds·k; dk = dsᵀ·q.
  void BackwardSamples(int samples, const float* q, const float* probability, const float* slope,
                       float* dq, float* scratch) const {
    const Matrices<const float> dy = Output(slope);
    const Matrices<float> ds = Scores(scratch);
    const Product down = {kTurned, kAsIs, steps_, head_, steps_, 1};
    Multiply(samples, down, Scores(probability), dy, Packed(dq + 2 * width_));
    Multiply(samples, {kAsIs, kTurned, steps_, steps_, head_, 1}, dy, Packed(q + 2 * width_), ds);
    PD_CUDA(LaunchScoreSoftmaxBackward(probability, scratch, ShapeOf(samples), scale_, stream()));
    Multiply(samples, {kAsIs, kAsIs, steps_, head_, steps_, 1}, Const(ds), Packed(q + width_),
             Packed(dq));
    Multiply(samples, down, Const(ds), Packed(q), Packed(dq + width_));
  }

  /// To cuBLAS, which reads column by column, each matrix is its transpose: cᵀ = op(b)ᵀ·op(a)ᵀ.
  void Multiply(int samples, const Product& product, Matrices<const float> a,
                Matrices<const float> b, Matrices<float> c) const {
    const bool by_head = heads_ <= samples;
    const int calls = by_head ? heads_ : samples;
    const int batch = by_head ? samples : heads_;
    const auto start = [&](const auto& m, int i) {
      return m.data + i * (by_head ? m.head : m.sample);
    };
    const auto stride = [&](const auto& m) { return by_head ? m.sample : m.head; };
    for (int i = 0; i < calls; ++i) {
      PD_CUBLAS(cublasSgemmStridedBatched(context_.blas(), product.b, product.a, product.columns,
                                          product.rows, product.inner, &product.scale, start(b, i),
                                          b.row, stride(b), start(a, i), a.row, stride(a), &kZero,
                                          start(c, i), c.row, stride(c), batch));
    }
  }

  /// q, k or v of the input, or of its gradient.
  template <typename T>
  Matrices<T> Packed(T* data) const {
    return {data, row_, int64_t{steps_} * row_, head_};
  }
  template <typename T>
  Matrices<T> Output(T* data) const {
    return {data, width_, int64_t{steps_} * width_, head_};
  }
  template <typename T>
  Matrices<T> Scores(T* data) const {
    return {data, steps_, ScoresOf(1), int64_t{steps_} * steps_};
  }
  static Matrices<const float> Const(const Matrices<float>& m) {
    return {m.data, m.row, m.sample, m.head};
  }

  /// Elements.
  int64_t ScoresOf(int samples) const { return int64_t{samples} * heads_ * steps_ * steps_; }
  ScoreShape ShapeOf(int samples) const { return {int64_t{samples} * heads_, steps_, causal_}; }

  bool causal_;
  int samples_ = 0, heads_ = 0, steps_ = 0;
  int row_ = 0;    ///< Elements of a position of the input: q, k and v.
  int width_ = 0;  ///< Of one of them.
  int head_ = 0;   ///< Of a head of one.
  int at_once_ = 0;
  float scale_ = 1;
};

}  // namespace

std::unique_ptr<Op> MakeAttention(const Context& context, const AttentionDesc& desc,
                                  const OpRequest& request) {
  return std::make_unique<Attention>(context, desc, request);
}

}  // namespace pd::cuda
