#include "backend/cpu/cpu_op.h"
#include "backend/cpu/dense_inputs.h"
#include "backend/cpu/ops.h"

namespace pd::cpu {
namespace {

using dnnl::normalization_flags;

/// All gradients come from one kernel: with the input's where that is wanted, else with the
/// parameters', and then the input's goes to the workspace.
class LayerNorm : public CpuOp {
 public:
  LayerNorm(const Context& context, const LayerNormDesc& desc, const OpRequest& request)
      : CpuOp(context), wants_dx_(request.wants_dx.at(0)) {
    info_.y = request.x.at(0);
    const int64_t width = info_.y.dims.back();
    const int64_t rows = Elements(info_.y.dims) / width;
    info_.params = {DenseLayout({width}, DType::kF32), DenseLayout({width}, DType::kF32)};
    statistic_ = (static_cast<size_t>(rows) * sizeof(float) + 63) / 64 * 64;
    info_.saved_bytes = 2 * statistic_;
    info_.backward_reads_x = true;

    const MemoryDesc x = PlainDesc({rows, width});
    const auto eps = static_cast<float>(desc.eps);
    const auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
    const dnnl::layer_normalization_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, x, eps, flags}, UserScratchpad(), context.engine);
    const dnnl::layer_normalization_backward::primitive_desc backward(
        {dnnl::prop_kind::backward, x, x, eps, flags}, UserScratchpad(), context.engine, forward);
    forward_ = Add(forward, {{DNNL_ARG_SRC},
                             {DNNL_ARG_SCALE},
                             {DNNL_ARG_SHIFT},
                             {DNNL_ARG_DST, {}, true},
                             {DNNL_ARG_MEAN, {}, true},
                             {DNNL_ARG_VARIANCE, {}, true}});
    unwanted_ = wants_dx_ ? 0 : (info_.y.bytes + 63) / 64 * 64;
    // oneDNN 2.6 does not run backward without the shift, which it does not read.
    const std::vector<Operand> operands = {{DNNL_ARG_SRC},
                                           {DNNL_ARG_MEAN},
                                           {DNNL_ARG_VARIANCE},
                                           {DNNL_ARG_DIFF_DST},
                                           {DNNL_ARG_SCALE},
                                           {DNNL_ARG_SHIFT},
                                           {DNNL_ARG_DIFF_SRC, {}, true},
                                           {DNNL_ARG_DIFF_SCALE, {}, true},
                                           {DNNL_ARG_DIFF_SHIFT, {}, true}};
    backward_ = Keep(std::make_unique<Kernel>(context_, backward, operands), unwanted_);
  }

  void Forward(const OpArgs& args) override {
    forward_->Run({args.x[0], args.params[0], args.params[1], args.y, Mean(args), Variance(args)},
                  args.workspace);
  }

  void BackwardData(const OpArgs& args) override { Backward(args, args.dx[0]); }
  void BackwardWeights(const OpArgs& args) override {
    if (!wants_dx_) Backward(args, args.workspace);
  }

 private:
  void Backward(const OpArgs& args, void* dx) const {
    backward_->Run({args.x[0], Mean(args), Variance(args), args.dy, args.params[0], args.params[1],
                    dx, args.dparams[0], args.dparams[1]},
                   static_cast<std::byte*>(args.workspace) + unwanted_);
  }

  static void* Mean(const OpArgs& args) { return args.saved; }
  void* Variance(const OpArgs& args) const {
    return static_cast<std::byte*>(args.saved) + statistic_;
  }

  bool wants_dx_;
  size_t statistic_ = 0;  ///< Bytes of one statistic of all rows.
  size_t unwanted_ = 0;   ///< Bytes of a gradient of the input that nobody wants.
  Kernel* forward_ = nullptr;
  Kernel* backward_ = nullptr;
};

}  // namespace

std::unique_ptr<Op> MakeLayerNorm(const Context& context, const LayerNormDesc& desc,
                                  const OpRequest& request) {
  return OnDenseInputs(context, request, [&](const OpRequest& dense) {
    return std::make_unique<LayerNorm>(context, desc, dense);
  });
}

}  // namespace pd::cpu
