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
    const Layout& logits = MainInput(request, kDTypeOf<T>, 2, "softmax_cross_entropy");
    const Layout& label = DenseInput(request, 1, DType::kI32, "softmax_cross_entropy");
    samples_ = logits.dims[0];
    classes_ = logits.dims[1];
    PD_CHECK(label.dims == Shape{samples_}, "softmax_cross_entropy: logits {} with labels {}",
             ToString(logits.dims), ToString(label.dims));
    info_.y = DenseLayout({samples_}, kDTypeOf<T>);
    info_.backward_reads_x = true;
  }

  void Forward(const OpArgs& args) override {
    const int32_t* label = In<int32_t>(args.x[1]);
    for (int64_t n = 0; n < samples_; ++n) {
      PD_REQUIRE(label[n] >= 0 && label[n] < classes_,
                 "minibatch {}: sample {} has label {}, expected one of 0 to {}", args.minibatch, n,
                 label[n], classes_ - 1);
    }
    T* y = Out<T>(args.y);
    for (int64_t n = 0; n < samples_; ++n) {
      const T* logits = In<T>(args.x[0]) + n * classes_;
      const T* largest = std::max_element(logits, logits + classes_);
      y[n] = static_cast<T>(std::log(Sum(logits, *largest)) + *largest - logits[label[n]]);
      if (args.correct != nullptr) args.correct[n] = largest - logits == label[n] ? 1.0F : 0.0F;
    }
  }

  void BackwardData(const OpArgs& args) override {
    const int32_t* label = In<int32_t>(args.x[1]);
    const double scale = static_cast<double>(desc_.weight) / static_cast<double>(samples_);
    T* dx = Out<T>(args.dx[0]);
    for (int64_t n = 0; n < samples_; ++n, dx += classes_) {
      const T* logits = In<T>(args.x[0]) + n * classes_;
      const double largest = *std::max_element(logits, logits + classes_);
      const double sum = Sum(logits, largest);
      for (int64_t c = 0; c < classes_; ++c) {
        const double probability = std::exp(logits[c] - largest) / sum;
        dx[c] = static_cast<T>(scale * (probability - (c == label[n] ? 1 : 0)));
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

  SoftmaxCrossEntropyDesc desc_;
  int64_t samples_, classes_;
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
