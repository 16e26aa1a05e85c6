#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace pd::cpu {
namespace {

/// Keeps the probabilities, so that each exponential is computed once.
class SoftmaxCrossEntropy : public CpuOp {
 public:
  SoftmaxCrossEntropy(const Context& context, const SoftmaxCrossEntropyDesc& desc,
                      const OpRequest& request)
      : CpuOp(context), desc_(desc) {
    const Layout& logits = request.x.at(0);
    const Layout& targets = request.x.at(1);
    PD_CHECK(logits.dense() && logits.dims.size() >= 2 && targets.dtype == DType::kI32 &&
                 targets.dims == Shape(logits.dims.begin(), logits.dims.end() - 1),
             "softmax_cross_entropy: logits {} with targets {}", ToString(logits.dims),
             ToString(targets.dims));
    samples_ = logits.dims[0];
    classes_ = logits.dims.back();
    targets_ = Elements(targets.dims) / samples_;
    info_.y = DenseLayout({samples_, kLossColumns}, DType::kF32);
    info_.saved_bytes = logits.bytes;
    info_.backward_reads_x = true;  // the targets
  }

  void Forward(const OpArgs& args) override {
    const auto* target = static_cast<const int32_t*>(args.x[1]);
    for (int64_t i = 0; i < samples_ * targets_; ++i) {
      PD_REQUIRE((target[i] >= 0 && target[i] < classes_) || target[i] == kIgnoredTarget,
                 "minibatch {}: sample {} has target {}, expected one of 0 to {}, or {}",
                 args.minibatch, i / targets_, target[i], classes_ - 1, kIgnoredTarget);
    }
    ForRanges(Threads(), samples_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) Sample(args, n);
    });
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    const auto* target = static_cast<const int32_t*>(args.x[1]);
    const float* probability = Floats(args.saved);
    float* dx = Floats(args.dx[0]);
    const auto scale = static_cast<float>(static_cast<double>(desc_.weight) /
                                          static_cast<double>(samples_ * targets_));
    ForRanges(Threads(), samples_ * targets_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* p = probability + i * classes_;
        float* d = dx + i * classes_;
        if (target[i] == kIgnoredTarget) {
          std::fill(d, d + classes_, 0.0F);
          continue;
        }
        for (int64_t c = 0; c < classes_; ++c) d[c] = scale * p[c];
        d[target[i]] = scale * (p[target[i]] - 1.0F);
      }
    });
  }

 private:
  int Threads() const {
    const int64_t worth = samples_ * targets_ * classes_ / kElementsAThread;
    return static_cast<int>(std::clamp<int64_t>(worth, 1, context_.threads));
  }

  void Sample(const OpArgs& args, int64_t n) const {
    double sums[kLossColumns] = {};
    for (int64_t i = n * targets_; i < (n + 1) * targets_; ++i) {
      const int32_t target = static_cast<const int32_t*>(args.x[1])[i];
      if (target == kIgnoredTarget) continue;
      const float* logits = Floats(args.x[0]) + i * classes_;
      const float own = logits[target];
      const float largest = *std::max_element(logits, logits + classes_);
      const double sum = Softmax(logits, largest, Floats(args.saved) + i * classes_);
      sums[kLossSum] += std::log(sum) + (static_cast<double>(largest) - static_cast<double>(own));
      int64_t rank = 0;
      for (int64_t c = 0; c < target; ++c) rank += logits[c] >= own ? 1 : 0;
      for (int64_t c = target + 1; c < classes_; ++c) rank += logits[c] > own ? 1 : 0;
      sums[kLossCounted] += 1;
      sums[kLossRight] += rank == 0 ? 1 : 0;
      sums[kLossTop5] += rank < 5 ? 1 : 0;
    }
    float* y = Floats(args.y) + n * kLossColumns;
    for (int c = 0; c < kLossColumns; ++c) y[c] = static_cast<float>(sums[c]);
  }

  /// Returns Σ e^(logit - largest): the largest is taken off so that nothing overflows.
  double Softmax(const float* logits, float largest, float* probability) const {
    double sum = 0;
    for (int64_t c = 0; c < classes_; ++c) {
      probability[c] = std::exp(logits[c] - largest);
      sum += static_cast<double>(probability[c]);
    }
    const auto inverse = static_cast<float>(1 / sum);
    for (int64_t c = 0; c < classes_; ++c) probability[c] *= inverse;
    return sum;
  }

  SoftmaxCrossEntropyDesc desc_;
  int64_t samples_ = 0, targets_ = 0, classes_ = 0;  // `targets_` of one sample
};

}  // namespace

std::unique_ptr<Op> MakeSoftmaxCrossEntropy(const Context& context,
                                            const SoftmaxCrossEntropyDesc& desc,
                                            const OpRequest& request) {
  return std::make_unique<SoftmaxCrossEntropy>(context, desc, request);
}

}  // namespace pd::cpu
