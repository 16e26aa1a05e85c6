#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"

namespace pd::cuda {
namespace {

/// Keeps each row's statistics.
class LayerNorm : public CudaOp {
 public:
  LayerNorm(const Context& context, const LayerNormDesc& desc, const OpRequest& request)
      : CudaOp(context), eps_(desc.eps) {
    info_.y = DenseInput(request, 0, "layer_norm");
    const int64_t width = info_.y.dims.back();
    shape_ = {Elements(info_.y.dims) / width, width};
    info_.params = {DenseLayout({width}, DType::kF32), DenseLayout({width}, DType::kF32)};
    info_.saved_bytes = 2 * static_cast<size_t>(shape_.rows) * sizeof(double);
    info_.backward_reads_x = true;
    CheckParams(request, info_, "layer_norm");
  }

  void Forward(const OpArgs& args) override {
    PD_CUDA(LaunchLayerNorm(Floats(args.x[0]), Floats(args.params[0]), Floats(args.params[1]),
                            Floats(args.y), Statistics(args), shape_, eps_, stream()));
  }
  void BackwardData(const OpArgs& args) override {
    PD_CUDA(LaunchLayerNormBackward(Floats(args.x[0]), Floats(args.params[0]), Statistics(args),
                                    Floats(args.dy), Floats(args.dx[0]), shape_, stream()));
  }
  void BackwardWeights(const OpArgs& args) override {
    const float* dy = Floats(args.dy);
    PD_CUDA(LaunchLayerNormGradient(Floats(args.x[0]), Statistics(args), dy,
                                    Floats(args.dparams[0]), shape_, stream()));
    PD_CUDA(
        LaunchBiasGradient(dy, Floats(args.dparams[1]), {shape_.rows, shape_.width, 1}, stream()));
  }

 private:
  static double* Statistics(const OpArgs& args) { return static_cast<double*>(args.saved); }

  double eps_;
  RowShape shape_;
};

}  // namespace

std::unique_ptr<Op> MakeLayerNorm(const Context& context, const LayerNormDesc& desc,
                                  const OpRequest& request) {
  return std::make_unique<LayerNorm>(context, desc, request);
}

}  // namespace pd::cuda
