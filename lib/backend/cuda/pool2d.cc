#include <limits>

#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

// Pooling on own kernels. cuDNN's does not say which of several equal maxima gets the gradient, is
// not deterministic for them by default, has no windows that hang over the padded image, and wants
// x and y kept for a backward pass that needs neither.

namespace pd::cuda {
namespace {

class Pool2d : public CudaOp {
 public:
  Pool2d(const Context& context, const Pool2dDesc& desc, const OpRequest& request)
      : CudaOp(context), max_(desc.kind == Pool2dDesc::Kind::kMax) {
    const Layout& x = DenseInput(request, 0, "pool2d");
    PD_CHECK(x.dims.size() == 4, "pool2d: input has shape {}", ToString(x.dims));
    shape_.planes = x.dims[0] * x.dims[1];
    shape_.count_include_pad = desc.count_include_pad;
    for (int i = 0; i < 2; ++i) {
      shape_.in[i] = x.dims[2 + i];
      shape_.out[i] = desc.out[i];
      shape_.kernel[i] = desc.kernel[i];
      shape_.stride[i] = desc.stride[i];
      shape_.padding[i] = desc.padding[i];
      PD_CHECK(desc.kernel[i] > desc.padding[i] && desc.stride[i] > 0 && desc.padding[i] >= 0 &&
                   desc.out[i] > 0 &&
                   (desc.out[i] - 1) * desc.stride[i] < shape_.in[i] + desc.padding[i],
               "pool2d: kernel {}, stride {}, padding {}, output {} on extent {}", desc.kernel[i],
               desc.stride[i], desc.padding[i], desc.out[i], shape_.in[i]);
    }
    if (shape_.in[0] * shape_.in[1] > std::numeric_limits<int32_t>::max()) {
      Throw(ErrorCode::kInvalidInput, "pool2d: an image of {} by {} is too large", shape_.in[0],
            shape_.in[1]);
    }
    info_.y = DenseLayout({x.dims[0], x.dims[1], desc.out[0], desc.out[1]}, DType::kF32);
    if (max_) info_.saved_bytes = info_.y.stored() * sizeof(int32_t);
  }

  void Forward(const OpArgs& args) override {
    const float* x = Floats(args.x[0]);
    float* y = Floats(args.y);
    if (max_) {
      PD_CUDA(LaunchMaxPool(x, y, static_cast<int32_t*>(args.saved), shape_, stream()));
    } else {
      PD_CUDA(LaunchAveragePool(x, y, shape_, stream()));
    }
  }

  void BackwardData(const OpArgs& args) override {
    const float* dy = Floats(args.dy);
    float* dx = Floats(args.dx[0]);
    if (max_) {
      PD_CUDA(
          LaunchMaxPoolBackward(dy, static_cast<const int32_t*>(args.saved), dx, shape_, stream()));
    } else {
      PD_CUDA(LaunchAveragePoolBackward(dy, dx, shape_, stream()));
    }
  }

 private:
  bool max_;
  PoolShape shape_;
};

}  // namespace

std::unique_ptr<Op> MakePool2d(const Context& context, const Pool2dDesc& desc,
                               const OpRequest& request) {
  return std::make_unique<Pool2d>(context, desc, request);
}

}  // namespace pd::cuda
