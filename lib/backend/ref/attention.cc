#include "backend/ref/attention.h"

#include <algorithm>
#include <cmath>

#include "backend/ref/ref_op.h"

namespace pd::ref {
namespace {

template <typename T>
class Attention : public Op {
 public:
  Attention(const AttentionDesc& desc, const OpRequest& request) : desc_(desc) {
    const Layout& x = MainInput(request, kDTypeOf<T>, 3, "attention");
    steps_ = x.dims[1];
    width_ = x.dims[2] / 3;
    PD_CHECK(desc.heads > 0 && x.dims[2] == 3 * width_ && width_ % desc.heads == 0,
             "attention: {} heads of {}", desc.heads, ToString(x.dims));
    head_ = width_ / desc.heads;
    pairs_ = x.dims[0] * desc.heads;
    info_.y = DenseLayout({x.dims[0], steps_, width_}, kDTypeOf<T>);
    info_.saved_bytes = static_cast<size_t>(pairs_ * steps_ * steps_) * sizeof(double);
    info_.workspace_bytes = static_cast<size_t>(steps_ * steps_) * sizeof(double);
    info_.backward_reads_x = true;
  }

  void Forward(const OpArgs& args) override {
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      const Head<const T> x = HeadOf(In<T>(args.x[0]), 3, pair);
      const Head<T> y = HeadOf(Out<T>(args.y), 1, pair);
      double* p = Out<double>(args.saved) + pair * steps_ * steps_;
      for (int64_t i = 0; i < steps_; ++i, p += steps_) {
        for (int64_t j = 0; j < Seen(i); ++j) {
          p[j] = Sum(head_, [&](int64_t c) { return x(i, c) * x(j, width_ + c); }) * Scale();
        }
        Softmax(Seen(i), p);
        for (int64_t c = 0; c < head_; ++c) {
          y.at(i, c) =
              static_cast<T>(Sum(steps_, [&](int64_t j) { return p[j] * x(j, 2 * width_ + c); }));
        }
      }
    }
  }

  /// With p the probabilities and s the scores: dv = pᵀ·dy; dp = dy·vᵀ;
  /// ds = p·(dp - Σ p·dp) / √head; dq = ds·k; dk = dsᵀ·q.
  void BackwardData(const OpArgs& args) override {
    double* ds = Out<double>(args.workspace);
    for (int64_t pair = 0; pair < pairs_; ++pair) {
      const Head<const T> x = HeadOf(In<T>(args.x[0]), 3, pair);
      const Head<const T> dy = HeadOf(In<T>(args.dy), 1, pair);
      const Head<T> dx = HeadOf(Out<T>(args.dx[0]), 3, pair);
      const double* p = In<double>(args.saved) + pair * steps_ * steps_;
      ScoreGradients(x, dy, p, ds);
      for (int64_t i = 0; i < steps_; ++i) {
        for (int64_t c = 0; c < head_; ++c) {
          dx.at(i, c) = static_cast<T>(
              Sum(steps_, [&](int64_t j) { return ds[i * steps_ + j] * x(j, width_ + c); }));
          dx.at(i, width_ + c) =
              static_cast<T>(Sum(steps_, [&](int64_t j) { return ds[j * steps_ + i] * x(j, c); }));
          dx.at(i, 2 * width_ + c) =
              static_cast<T>(Sum(steps_, [&](int64_t j) { return p[j * steps_ + i] * dy(j, c); }));
        }
      }
    }
  }

 private:
  /// One head's columns of one sample.
  template <typename Element>
  struct Head {
    Element* data;
    int64_t row;

    Element& at(int64_t step, int64_t column) const { return data[step * row + column]; }
    double operator()(int64_t step, int64_t column) const {
      return static_cast<double>(at(step, column));
    }
  };

  /// `parts`: how often a row holds all heads' columns.
  template <typename Element>
  Head<Element> HeadOf(Element* data, int64_t parts, int64_t pair) const {
    const int64_t row = parts * width_;
    const int64_t sample = pair / desc_.heads;
    return {data + sample * steps_ * row + pair % desc_.heads * head_, row};
  }

  template <typename F>
  static double Sum(int64_t count, F term) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += term(i);
    return sum;
  }

  double Scale() const { return 1 / std::sqrt(static_cast<double>(head_)); }
  /// How many positions position i sees.
  int64_t Seen(int64_t i) const { return desc_.causal ? i + 1 : steps_; }

  /// In place over the first `seen`; the others of the row become 0.
  void Softmax(int64_t seen, double* p) const {
    const double largest = *std::max_element(p, p + seen);
    double sum = 0;
    for (int64_t j = 0; j < seen; ++j) sum += p[j] = std::exp(p[j] - largest);
    for (int64_t j = 0; j < seen; ++j) p[j] /= sum;
    std::fill(p + seen, p + steps_, 0.0);
  }

  void ScoreGradients(const Head<const T>& x, const Head<const T>& dy, const double* p,
                      double* ds) const {
    for (int64_t i = 0; i < steps_; ++i, p += steps_, ds += steps_) {
      for (int64_t j = 0; j < steps_; ++j) {
        ds[j] = Sum(head_, [&](int64_t c) { return dy(i, c) * x(j, 2 * width_ + c); });
      }
      const double mean = Sum(steps_, [&](int64_t j) { return p[j] * ds[j]; });
      for (int64_t j = 0; j < steps_; ++j) ds[j] = p[j] * (ds[j] - mean) * Scale();
    }
  }

  AttentionDesc desc_;
  int64_t steps_, width_, head_;
  int64_t pairs_;  ///< Of a sample and a head.
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeAttention(const AttentionDesc& desc, const OpRequest& request) {
  return std::make_unique<Attention<T>>(desc, request);
}

template std::unique_ptr<Op> MakeAttention<float>(const AttentionDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeAttention<double>(const AttentionDesc&, const OpRequest&);

}  // namespace pd::ref
