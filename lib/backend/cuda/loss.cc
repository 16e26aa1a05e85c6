#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

namespace pd::cuda {
namespace {

/// Keeps the probabilities, so that each exponential is computed once. A target that is no class
/// cannot be refused here without waiting for the device: its loss and gradient are NaN.
class SoftmaxCrossEntropy : public CudaOp {
 public:
  SoftmaxCrossEntropy(const Context& context, const SoftmaxCrossEntropyDesc& desc,
                      const OpRequest& request)
      : CudaOp(context), weight_(desc.weight) {
    const Layout& logits = DenseInput(request, 0, "softmax_cross_entropy");
    const Layout& targets = DenseInput(request, 1, "softmax_cross_entropy", DType::kI32);
    PD_CHECK(logits.dims.size() >= 2 &&
                 targets.dims == Shape(logits.dims.begin(), logits.dims.end() - 1),
             "softmax_cross_entropy: logits {} with targets {}", ToString(logits.dims),
             ToString(targets.dims));
    shape_ = {.samples = logits.dims[0],
              .targets = ElementsFrom(targets.dims, 1),
              .classes = logits.dims.back(),
              .ignored = kIgnoredTarget};
    info_.y = DenseLayout({shape_.samples, kLossColumns}, DType::kF32);
    info_.saved_bytes = logits.bytes;
    if (shape_.targets > 1) {
      info_.workspace_bytes =
          static_cast<size_t>(shape_.samples * shape_.targets) * kLossColumns * sizeof(float);
    }
    info_.backward_reads_x = true;  // the targets
  }

  void Forward(const OpArgs& args) override {
    PD_CUDA(LaunchSoftmaxCrossEntropy(Floats(args.x[0]), static_cast<const int32_t*>(args.x[1]),
                                      Floats(args.saved), Floats(args.workspace), Floats(args.y),
                                      shape_, stream()));
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    const auto scale = static_cast<float>(static_cast<double>(weight_) /
                                          static_cast<double>(shape_.samples * shape_.targets));
    PD_CUDA(LaunchSoftmaxCrossEntropyBackward(Floats(args.saved),
                                              static_cast<const int32_t*>(args.x[1]),
                                              Floats(args.dx[0]), shape_, scale, stream()));
  }

 private:
  float weight_;
  LossShape shape_;
};

}  // namespace

std::unique_ptr<Op> MakeSoftmaxCrossEntropy(const Context& context,
                                            const SoftmaxCrossEntropyDesc& desc,
                                            const OpRequest& request) {
  return std::make_unique<SoftmaxCrossEntropy>(context, desc, request);
}

}  // namespace pd::cuda
