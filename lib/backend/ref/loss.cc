#include "backend/ref/loss.h"

#include <algorithm>
#include <cmath>

#include "backend/ref/ref_op.h"

namespace pd::ref {
namespace {

template <typename T>
class SoftmaxCrossEntropy : public Op {
 public:
  SoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc& desc, const OpRequest& request) : desc_(desc) {
    const Layout& logits = MainInput(request, kDTypeOf<T>, 0, "softmax_cross_entropy");
    const Layout& targets = DenseInput(request, 1, DType::kI32, "softmax_cross_entropy");
    PD_CHECK(targets.dims == Shape(logits.dims.begin(), logits.dims.end() - 1),
             "softmax_cross_entropy: logits {} with targets {}", ToString(logits.dims),
             ToString(targets.dims));
    samples_ = logits.dims[0];
    classes_ = logits.dims.back();
    targets_ = Elements(targets.dims) / samples_;
    info_.y = DenseLayout({samples_, kLossColumns}, kDTypeOf<T>);
    info_.backward_reads_x = true;
  }

  void Forward(const OpArgs& args) override {
    const int32_t* target = In<int32_t>(args.x[1]);
    for (int64_t i = 0; i < samples_ * targets_; ++i) {
      PD_REQUIRE((target[i] >= 0 && target[i] < classes_) || target[i] == kIgnoredTarget,
                 "minibatch {}: sample {} has target {}, expected one of 0 to {}, or {}",
                 args.minibatch, i / targets_, target[i], classes_ - 1, kIgnoredTarget);
    }
    const T* logits = In<T>(args.x[0]);
    T* y = Out<T>(args.y);
    for (int64_t n = 0; n < samples_; ++n, y += kLossColumns) {
      double sums[kLossColumns] = {};
      for (int64_t t = 0; t < targets_; ++t, ++target, logits += classes_) {
        if (*target == kIgnoredTarget) continue;
        const double largest = *std::max_element(logits, logits + classes_);
        const int64_t rank = Rank(logits, *target);
        sums[kLossSum] += std::log(Sum(logits, largest)) + largest - logits[*target];
        sums[kLossCounted] += 1;
        sums[kLossRight] += rank == 0 ? 1 : 0;
        sums[kLossTop5] += rank < 5 ? 1 : 0;
      }
      for (int c = 0; c < kLossColumns; ++c) y[c] = static_cast<T>(sums[c]);
    }
  }

  void BackwardData(const OpArgs& args) override {
    const int32_t* target = In<int32_t>(args.x[1]);
    const T* logits = In<T>(args.x[0]);
    const double scale =
        static_cast<double>(desc_.weight) / static_cast<double>(samples_ * targets_);
    T* dx = Out<T>(args.dx[0]);
    for (int64_t i = 0; i < samples_ * targets_; ++i, logits += classes_, dx += classes_) {
      if (target[i] == kIgnoredTarget) {
        std::fill(dx, dx + classes_, T{0});
        continue;
      }
      const double largest = *std::max_element(logits, logits + classes_);
      const double sum = Sum(logits, largest);
      for (int64_t c = 0; c < classes_; ++c) {
        const double probability = std::exp(logits[c] - largest) / sum;
        dx[c] = static_cast<T>(scale * (probability - (c == target[i] ? 1 : 0)));
      }
    }
  }

 private:
  /// Σ e^(logit - largest): the largest is taken off so that nothing overflows.
  double Sum(const T* logits, double largest) const {
    double sum = 0;
    for (int64_t c = 0; c < classes_; ++c) sum += std::exp(logits[c] - largest);
    return sum;
  }

  /// Logits that are larger than the target's, or equal and earlier.
  int64_t Rank(const T* logits, int64_t target) const {
    int64_t rank = 0;
    for (int64_t c = 0; c < classes_; ++c) {
      rank += logits[c] > logits[target] || (logits[c] == logits[target] && c < target) ? 1 : 0;
    }
    return rank;
  }

  SoftmaxCrossEntropyDesc desc_;
  int64_t samples_, targets_, classes_;  // `targets_` of one sample
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc& desc,
                                            const OpRequest& request) {
  return std::make_unique<SoftmaxCrossEntropy<T>>(desc, request);
}

template std::unique_ptr<Op> MakeSoftmaxCrossEntropy<float>(const SoftmaxCrossEntropyDesc&,
                                                            const OpRequest&);
template std::unique_ptr<Op> MakeSoftmaxCrossEntropy<double>(const SoftmaxCrossEntropyDesc&,
                                                             const OpRequest&);

}  // namespace pd::ref
