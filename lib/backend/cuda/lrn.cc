#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

// cuDNN's window of n channels is [c - (n-1)/2, c + n/2], clipped, and it divides alpha by n: our
// definition for odd n. For even n our window has its odd channel on the other side.

namespace pd::cuda {
namespace {

constexpr int64_t kMaxSize = (CUDNN_LRN_MAX_N - 1) / 2 * 2 + 1;  // the largest odd one

class Lrn : public CudaOp {
 public:
  Lrn(const Context& context, const LrnDesc& desc, const OpRequest& request) : CudaOp(context) {
    const Layout& x = DenseInput(request, 0, "lrn");
    if (desc.size < CUDNN_LRN_MIN_N || desc.size > kMaxSize || desc.size % 2 == 0) {
      Throw(ErrorCode::kInvalidInput, "lrn: size is {}, on a GPU it is odd and at most {}",
            desc.size, kMaxSize);
    }
    if (desc.k < CUDNN_LRN_MIN_K || desc.beta < CUDNN_LRN_MIN_BETA) {
      Throw(ErrorCode::kInvalidInput, "lrn: k is {} and beta is {}, cuDNN wants at least {} and {}",
            desc.k, desc.beta, CUDNN_LRN_MIN_K, CUDNN_LRN_MIN_BETA);
    }
    lrn_ = Make<UniqueLrnDesc>(cudnnCreateLRNDescriptor, "cudnnCreateLRNDescriptor");
    PD_CUDNN(cudnnSetLRNDescriptor(lrn_.get(), static_cast<unsigned>(desc.size), desc.alpha,
                                   desc.beta, desc.k));
    x_ = MakeTensorDesc(x.dims, "lrn");
    info_.y = x;
    info_.backward_reads_x = true;
    info_.backward_reads_y = true;
  }

  void Forward(const OpArgs& args) override {
    PD_CUDNN(cudnnLRNCrossChannelForward(context_.dnn(), lrn_.get(), kMode, &kOne, x_.get(),
                                         args.x[0], &kZero, x_.get(), args.y));
  }

  void BackwardData(const OpArgs& args) override {
    PD_CUDNN(cudnnLRNCrossChannelBackward(context_.dnn(), lrn_.get(), kMode, &kOne, x_.get(),
                                          args.y, x_.get(), args.dy, x_.get(), args.x[0], &kZero,
                                          x_.get(), args.dx[0]));
  }

 private:
  static constexpr cudnnLRNMode_t kMode = CUDNN_LRN_CROSS_CHANNEL_DIM1;

  UniqueLrnDesc lrn_;
  UniqueTensorDesc x_;  // of x, y and their gradients
};

}  // namespace

std::unique_ptr<Op> MakeLrn(const Context& context, const LrnDesc& desc, const OpRequest& request) {
  return std::make_unique<Lrn>(context, desc, request);
}

}  // namespace pd::cuda
