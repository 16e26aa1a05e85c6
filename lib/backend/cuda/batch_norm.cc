#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

// cuDNN's spatial batch norm is our definition: the minibatch's biased variance for y, the unbiased
// one, by m/(m - 1), for the running variance, and the factor is the share of the new value. A
// single value a channel, where it would divide by zero, is computed here: y = bias, no gradient
// but the bias's.

namespace pd::cuda {
namespace {

class BatchNorm : public CudaOp {
 public:
  BatchNorm(const Context& context, const BatchNormDesc& desc, const OpRequest& request)
      : CudaOp(context), desc_(desc) {
    const Layout& x = DenseInput(request, 0, "batch_norm");
    channels_ = x.dims[1];
    one_value_ = Elements(x.dims) == channels_;
    with_dx_ = request.wants_dx.at(0);
    if (desc.eps < CUDNN_BN_MIN_EPSILON) {
      Throw(ErrorCode::kInvalidInput, "batch_norm: eps is {}, cuDNN wants at least {}", desc.eps,
            CUDNN_BN_MIN_EPSILON);
    }
    x_ = MakeTensorDesc(x.dims, "batch_norm");
    params_ = MakeTensorDesc(1, channels_, 1, 1, "batch_norm");
    info_.y = x;
    info_.params.assign(2, DenseLayout({channels_}, DType::kF32));
    inverse_offset_ = (info_.params[0].bytes + 63) / 64 * 64;
    info_.saved_bytes = inverse_offset_ + info_.params[0].bytes;
    // cuDNN computes all three gradients at once.
    if (!with_dx_) info_.workspace_bytes = x.bytes;
    info_.backward_reads_x = true;
    CheckParams(request, info_, "batch_norm");
  }

  void Forward(const OpArgs& args) override {
    if (!args.training) {
      PD_CUDNN(cudnnBatchNormalizationForwardInference(
          context_.dnn(), kMode, &kOne, &kZero, x_.get(), args.x[0], x_.get(), args.y,
          params_.get(), args.params[0], args.params[1], args.state[0], args.state[1], desc_.eps));
    } else if (one_value_) {
      PD_CUDA(LaunchBatchNormOfOne(Floats(args.x[0]), Floats(args.params[0]),
                                   Floats(args.params[1]), Floats(args.y), Floats(args.state[0]),
                                   Floats(args.state[1]), desc_.momentum, channels_, stream()));
    } else {
      PD_CUDNN(cudnnBatchNormalizationForwardTraining(
          context_.dnn(), kMode, &kOne, &kZero, x_.get(), args.x[0], x_.get(), args.y,
          params_.get(), args.params[0], args.params[1], desc_.momentum, args.state[0],
          args.state[1], desc_.eps, Mean(args), Inverse(args)));
    }
  }

  void BackwardData(const OpArgs& args) override { Backward(args, args.dx[0]); }
  void BackwardWeights(const OpArgs& args) override {
    if (!with_dx_) Backward(args, args.workspace);
  }

 private:
  static constexpr cudnnBatchNormMode_t kMode = CUDNN_BATCHNORM_SPATIAL;

  /// Of the minibatch: what Forward keeps.
  static void* Mean(const OpArgs& args) { return args.saved; }
  void* Inverse(const OpArgs& args) const {
    return static_cast<std::byte*>(args.saved) + inverse_offset_;
  }

  void Backward(const OpArgs& args, void* dx) const {
    if (one_value_) {
      PD_CUDA(cudaMemsetAsync(dx, 0, info_.y.bytes, stream()));
      PD_CUDA(cudaMemsetAsync(args.dparams[0], 0, info_.params[0].bytes, stream()));
      CopyAsync(args.dparams[1], args.dy, info_.params[1].bytes);
      return;
    }
    PD_CUDNN(cudnnBatchNormalizationBackward(
        context_.dnn(), kMode, &kOne, &kZero, &kOne, &kZero, x_.get(), args.x[0], x_.get(), args.dy,
        x_.get(), dx, params_.get(), args.params[0], args.dparams[0], args.dparams[1], desc_.eps,
        Mean(args), Inverse(args)));
  }

  BatchNormDesc desc_;
  UniqueTensorDesc x_;       // of x, y and their gradients
  UniqueTensorDesc params_;  // of all that is one value a channel
  int64_t channels_ = 0;
  size_t inverse_offset_ = 0;
  bool one_value_ = false, with_dx_ = false;
};

}  // namespace

std::unique_ptr<Op> MakeBatchNorm(const Context& context, const BatchNormDesc& desc,
                                  const OpRequest& request) {
  return std::make_unique<BatchNorm>(context, desc, request);
}

}  // namespace pd::cuda
