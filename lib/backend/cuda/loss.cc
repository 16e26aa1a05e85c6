#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

namespace pd::cuda {
namespace {

/// Keeps the probabilities, so that each exponential is computed once. A label outside the classes
/// cannot be refused here without waiting for the device: that sample's loss and gradient are NaN.
class SoftmaxCrossEntropy : public CudaOp {
 public:
  SoftmaxCrossEntropy(const Context& context, const SoftmaxCrossEntropyDesc& desc,
                      const OpRequest& request)
      : CudaOp(context), weight_(desc.weight) {
    const Layout& logits = DenseInput(request, 0, "softmax_cross_entropy");
    const Layout& label = DenseInput(request, 1, "softmax_cross_entropy", DType::kI32);
    PD_CHECK(logits.dims.size() == 2 && label.dims == Shape{logits.dims[0]},
             "softmax_cross_entropy: logits {} with labels {}", ToString(logits.dims),
             ToString(label.dims));
    samples_ = logits.dims[0];
    classes_ = logits.dims[1];
    info_.y = DenseLayout({samples_}, DType::kF32);
    info_.saved_bytes = logits.bytes;
    info_.backward_reads_x = true;  // the labels
  }

  void Forward(const OpArgs& args) override {
    PD_CUDA(LaunchSoftmaxCrossEntropy(Floats(args.x[0]), static_cast<const int32_t*>(args.x[1]),
                                      Floats(args.saved), Floats(args.y), args.correct, samples_,
                                      classes_, stream()));
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    const auto scale =
        static_cast<float>(static_cast<double>(weight_) / static_cast<double>(samples_));
    PD_CUDA(LaunchSoftmaxCrossEntropyBackward(
        Floats(args.saved), static_cast<const int32_t*>(args.x[1]), Floats(args.dx[0]), samples_,
        classes_, scale, stream()));
  }

 private:
  float weight_;
  int64_t samples_ = 0, classes_ = 0;
};

}  // namespace

std::unique_ptr<Op> MakeSoftmaxCrossEntropy(const Context& context,
                                            const SoftmaxCrossEntropyDesc& desc,
                                            const OpRequest& request) {
  return std::make_unique<SoftmaxCrossEntropy>(context, desc, request);
}

}  // namespace pd::cuda
