#include "backend/cpu/cpu_op.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/vectorize.h"

// Element-wise functions run over all stored elements, padding included, whatever the layout.

namespace pd::cpu {
namespace {

/// NaN passes, so that it reaches the loss and stops the training; oneDNN's gives 0.
PD_CLONES void ReluForward(const float* x, float* y, int64_t count) {
  PD_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] <= 0 ? 0 : x[i];
}

PD_CLONES void ReluBackward(const float* y, const float* dy, float* dx, int64_t count) {
  PD_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) dx[i] = y[i] <= 0 ? 0 : dy[i];
}

PD_CLONES void CopyNan(const float* x, float* y, int64_t count) {
  PD_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] != x[i] ? x[i] : y[i];
}

class Relu : public CpuOp {
 public:
  Relu(const Context& context, const OpRequest& request) : CpuOp(context) {
    info_.y = request.x.at(0);
    info_.backward_reads_y = true;
    count_ = static_cast<int64_t>(info_.y.stored());
  }

  void Forward(const OpArgs& args) override {
    const float* x = Floats(args.x[0]);
    float* y = Floats(args.y);
    ForRanges(context_.threads, count_, kElementsAThread,
              [&](int64_t begin, int64_t end) { ReluForward(x + begin, y + begin, end - begin); });
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    const float* y = Floats(args.y);
    const float* dy = Floats(args.dy);
    float* dx = Floats(args.dx[0]);
    ForRanges(context_.threads, count_, kElementsAThread, [&](int64_t begin, int64_t end) {
      ReluBackward(y + begin, dy + begin, dx + begin, end - begin);
    });
  }

 private:
  int64_t count_ = 0;
};

/// tanh or the logistic function, on oneDNN.
class Sigmoidal : public CpuOp {
 public:
  Sigmoidal(const Context& context, dnnl::algorithm algorithm, bool zero_at_zero,
            const OpRequest& request)
      : CpuOp(context), zero_at_zero_(zero_at_zero) {
    info_.y = request.x.at(0);
    info_.backward_reads_y = true;
    const auto stored = PlainDesc({static_cast<int64_t>(info_.y.stored())});
    const dnnl::eltwise_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, algorithm, stored, 0.0F}, UserScratchpad(),
        context.engine);
    const dnnl::eltwise_backward::primitive_desc backward(
        {algorithm, stored, stored, 0.0F}, UserScratchpad(), context.engine, forward);
    forward_ = Add(forward, {{DNNL_ARG_SRC}, {DNNL_ARG_DST, {}, true}});
    backward_ = Add(backward, {{DNNL_ARG_DST}, {DNNL_ARG_DIFF_DST}, {DNNL_ARG_DIFF_SRC, {}, true}});
  }

  void Forward(const OpArgs& args) override {
    forward_->Run({args.x[0], args.y}, args.workspace);
    CopyNan(Floats(args.x[0]), Floats(args.y), static_cast<int64_t>(info_.y.stored()));
    if (!zero_at_zero_ && !info_.y.dense()) ZeroPadding(ViewOf(info_.y), Floats(args.y));
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] != nullptr) backward_->Run({args.y, args.dy, args.dx[0]}, args.workspace);
  }

 private:
  bool zero_at_zero_;
  Kernel* forward_ = nullptr;
  Kernel* backward_ = nullptr;
};

class Gelu : public CpuOp {
 public:
  Gelu(const Context& context, const GeluDesc& desc, const OpRequest& request) : CpuOp(context) {
    info_.y = request.x.at(0);
    info_.backward_reads_x = true;
    const auto algorithm =
        desc.tanh ? dnnl::algorithm::eltwise_gelu_tanh : dnnl::algorithm::eltwise_gelu_erf;
    const auto stored = PlainDesc({static_cast<int64_t>(info_.y.stored())});
    const dnnl::eltwise_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, algorithm, stored, 0.0F}, UserScratchpad(),
        context.engine);
    const dnnl::eltwise_backward::primitive_desc backward(
        {algorithm, stored, stored, 0.0F}, UserScratchpad(), context.engine, forward);
    forward_ = Add(forward, {{DNNL_ARG_SRC}, {DNNL_ARG_DST, {}, true}});
    backward_ = Add(backward, {{DNNL_ARG_SRC}, {DNNL_ARG_DIFF_DST}, {DNNL_ARG_DIFF_SRC, {}, true}});
  }

  void Forward(const OpArgs& args) override {
    forward_->Run({args.x[0], args.y}, args.workspace);
    CopyNan(Floats(args.x[0]), Floats(args.y), static_cast<int64_t>(info_.y.stored()));
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] != nullptr) backward_->Run({args.x[0], args.dy, args.dx[0]}, args.workspace);
  }

 private:
  Kernel* forward_ = nullptr;
  Kernel* backward_ = nullptr;
};

}  // namespace

std::unique_ptr<Op> MakeActivation(const Context& context, Activation kind,
                                   const OpRequest& request) {
  switch (kind) {
    case Activation::kRelu:
      return std::make_unique<Relu>(context, request);
    case Activation::kTanh:
      return std::make_unique<Sigmoidal>(context, dnnl::algorithm::eltwise_tanh_use_dst_for_bwd,
                                         true, request);
    case Activation::kSigmoid:
      return std::make_unique<Sigmoidal>(context, dnnl::algorithm::eltwise_logistic_use_dst_for_bwd,
                                         false, request);
  }
  Throw(ErrorCode::kInternal, "activation {}", static_cast<int>(kind));
}

std::unique_ptr<Op> MakeGelu(const Context& context, const GeluDesc& desc,
                             const OpRequest& request) {
  return std::make_unique<Gelu>(context, desc, request);
}

}  // namespace pd::cpu
