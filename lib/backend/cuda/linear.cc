#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

// cuBLAS reads matrices column by column, so a row-major [rows, columns] is to it the transpose,
// with `columns` as leading dimension. Each product is computed transposed: yᵀ = weight·xᵀ.

namespace pd::cuda {
namespace {

class Linear : public CudaOp {
 public:
  Linear(const Context& context, const LinearDesc& desc, const OpRequest& request)
      : CudaOp(context), bias_(desc.bias) {
    const Layout& x = DenseInput(request, 0, "linear");
    const int64_t in = x.dims.back();
    const int64_t out = desc.out_features;
    in_ = ToInt(in, "linear", "the number of inputs");
    out_ = ToInt(out, "linear", "the number of outputs");
    rows_ = ToInt(Elements(x.dims) / in, "linear", "the number of rows");
    PD_CHECK(out > 0, "linear: {} output features", out);
    Shape y = x.dims;
    y.back() = out;
    info_.y = DenseLayout(y, DType::kF32);
    info_.params.push_back(DenseLayout({out, in}, DType::kF32));
    if (bias_) info_.params.push_back(DenseLayout({out}, DType::kF32));
    info_.backward_reads_x = true;
    CheckParams(request, info_, "linear");
  }

  void Forward(const OpArgs& args) override {
    const float* weight = Floats(args.params[0]);
    PD_CUBLAS(cublasSgemm(context_.blas(), CUBLAS_OP_T, CUBLAS_OP_N, out_, rows_, in_, &kOne,
                          weight, in_, Floats(args.x[0]), in_, &kZero, Floats(args.y), out_));
    if (bias_) {
      PD_CUDA(LaunchAddBias(Floats(args.y), Floats(args.params[1]), Rows(), stream()));
    }
  }

  void BackwardData(const OpArgs& args) override {
    const float* weight = Floats(args.params[0]);
    PD_CUBLAS(cublasSgemm(context_.blas(), CUBLAS_OP_N, CUBLAS_OP_N, in_, rows_, out_, &kOne,
                          weight, in_, Floats(args.dy), out_, &kZero, Floats(args.dx[0]), in_));
  }

  void BackwardWeights(const OpArgs& args) override {
    const float* x = Floats(args.x[0]);
    PD_CUBLAS(cublasSgemm(context_.blas(), CUBLAS_OP_N, CUBLAS_OP_T, in_, out_, rows_, &kOne, x,
                          in_, Floats(args.dy), out_, &kZero, Floats(args.dparams[0]), in_));
    if (bias_) {
      PD_CUDA(LaunchBiasGradient(Floats(args.dy), Floats(args.dparams[1]), Rows(), stream()));
    }
  }

 private:
  ChannelShape Rows() const { return {rows_, out_, 1}; }

  bool bias_;
  int in_ = 0, out_ = 0, rows_ = 0;
};

}  // namespace

std::unique_ptr<Op> MakeLinear(const Context& context, const LinearDesc& desc,
                               const OpRequest& request) {
  return std::make_unique<Linear>(context, desc, request);
}

}  // namespace pd::cuda
