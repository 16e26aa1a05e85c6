#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/ops.h"

namespace pd::cpu {
namespace {

/// Keeps the probabilities, so that each exponential is computed once.
class SoftmaxCrossEntropy : public CpuOp {
 public:
  SoftmaxCrossEntropy(const Context& context, const SoftmaxCrossEntropyDesc& desc,
                      const OpRequest& request)
      : CpuOp(context), desc_(desc) {
    const Layout& logits = request.x.at(0);
    const Layout& label = request.x.at(1);
    PD_CHECK(logits.dense() && logits.dims.size() == 2 && label.dtype == DType::kI32 &&
                 label.dims == Shape{logits.dims[0]},
             "softmax_cross_entropy: logits {} with labels {}", ToString(logits.dims),
             ToString(label.dims));
    samples_ = logits.dims[0];
    classes_ = logits.dims[1];
    info_.y = DenseLayout({samples_}, DType::kF32);
    info_.saved_bytes = logits.bytes;
    info_.backward_reads_x = true;  // the labels
  }

  void Forward(const OpArgs& args) override {
    const auto* label = static_cast<const int32_t*>(args.x[1]);
    for (int64_t n = 0; n < samples_; ++n) {
      PD_REQUIRE(label[n] >= 0 && label[n] < classes_,
                 "minibatch {}: sample {} has label {}, expected one of 0 to {}", args.minibatch, n,
                 label[n], classes_ - 1);
    }
    const float* logits = Floats(args.x[0]);
    float* probability = Floats(args.saved);
    float* y = Floats(args.y);
    for (int64_t n = 0; n < samples_; ++n, logits += classes_, probability += classes_) {
      const float* largest = std::max_element(logits, logits + classes_);
      double sum = 0;
      for (int64_t c = 0; c < classes_; ++c) {
        probability[c] = std::exp(logits[c] - *largest);
        sum += static_cast<double>(probability[c]);
      }
      const double below = static_cast<double>(*largest) - static_cast<double>(logits[label[n]]);
      y[n] = static_cast<float>(std::log(sum) + below);
      const auto inverse = static_cast<float>(1 / sum);
      for (int64_t c = 0; c < classes_; ++c) probability[c] *= inverse;
      if (args.correct != nullptr) args.correct[n] = largest - logits == label[n] ? 1.0F : 0.0F;
    }
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    const auto* label = static_cast<const int32_t*>(args.x[1]);
    const float* probability = Floats(args.saved);
    float* dx = Floats(args.dx[0]);
    const auto scale =
        static_cast<float>(static_cast<double>(desc_.weight) / static_cast<double>(samples_));
    for (int64_t n = 0; n < samples_; ++n, dx += classes_, probability += classes_) {
      for (int64_t c = 0; c < classes_; ++c) {
        dx[c] = scale * (probability[c] - (c == label[n] ? 1.0F : 0.0F));
      }
    }
  }

 private:
  SoftmaxCrossEntropyDesc desc_;
  int64_t samples_ = 0, classes_ = 0;
};

}  // namespace

std::unique_ptr<Op> MakeSoftmaxCrossEntropy(const Context& context,
                                            const SoftmaxCrossEntropyDesc& desc,
                                            const OpRequest& request) {
  return std::make_unique<SoftmaxCrossEntropy>(context, desc, request);
}

}  // namespace pd::cpu
