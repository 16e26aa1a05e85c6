#include "kernel_bench.h"

#include <algorithm>
#include <dnnl.hpp>
#include <unordered_map>

#include "base/error.h"
#include "stage/model_plan.h"

// A backend that is asked to plan each layer and times oneDNN's kernel for it instead.

namespace pd::bench {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
constexpr auto kF32 = dnnl::memory::data_type::f32;
constexpr auto kTraining = dnnl::prop_kind::forward_training;

Desc Any(const Dims& dims) { return {dims, kF32, Tag::any}; }

class DirectKernels : public Backend {
 public:
  DirectKernels(Backend& real, std::vector<KernelTimer>* timers)
      : real_(real), timers_(timers), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  std::string layer;  ///< Named in the timers.

  std::string_view kind() const override { return real_.kind(); }
  std::string name() const override { return real_.name(); }
  std::string libraries() const override { return real_.libraries(); }
  int threads() const override { return real_.threads(); }
  Buffer Allocate(size_t bytes) override { return real_.Allocate(bytes); }
  void Copy(void* to, const void* from, size_t bytes) override { real_.Copy(to, from, bytes); }
  void ToDense(const Layout&, const void*, void*) override {}
  void FromDense(const Layout&, const void*, void*) override {}
  void Accumulate(void*, const void*, size_t) override {}
  void Sgd(const SgdArgs&) override {}

  std::unique_ptr<Op> PlanConv2d(const Conv2dDesc& desc, const OpRequest& request) override;
  std::unique_ptr<Op> PlanLinear(const LinearDesc& desc, const OpRequest& request) override;
  std::unique_ptr<Op> PlanPool2d(const Pool2dDesc& desc, const OpRequest& request) override;
  std::unique_ptr<Op> PlanActivation(Activation kind, const OpRequest& request) override;
  std::unique_ptr<Op> PlanReshape(const Shape& shape, const OpRequest& request) override {
    return Own(real_.PlanReshape(shape, request), request);
  }
  std::unique_ptr<Op> PlanDropout(const DropoutDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanDropout(desc, request), request);
  }
  std::unique_ptr<Op> PlanBatchNorm(const BatchNormDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanBatchNorm(desc, request), request);
  }
  std::unique_ptr<Op> PlanLrn(const LrnDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanLrn(desc, request), request);
  }
  std::unique_ptr<Op> PlanAdd(const OpRequest& request) override {
    return Own(real_.PlanAdd(request), request);
  }
  std::unique_ptr<Op> PlanConcat(int64_t axis, const OpRequest& request) override {
    return Own(real_.PlanConcat(axis, request), request);
  }
  std::unique_ptr<Op> PlanSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc& desc,
                                              const OpRequest& request) override {
    return Own(real_.PlanSoftmaxCrossEntropy(desc, request), request);
  }
  std::unique_ptr<Op> PlanGelu(const GeluDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanGelu(desc, request), request);
  }
  std::unique_ptr<Op> PlanEmbedding(const EmbeddingDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanEmbedding(desc, request), request);
  }
  std::unique_ptr<Op> PlanLayerNorm(const LayerNormDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanLayerNorm(desc, request), request);
  }
  std::unique_ptr<Op> PlanAttention(const AttentionDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanAttention(desc, request), request);
  }
  std::unique_ptr<Op> PlanLstm(const LstmDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanLstm(desc, request), request);
  }
  std::unique_ptr<Op> PlanSlice(const SliceDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanSlice(desc, request), request);
  }
  std::unique_ptr<Op> PlanPad(const PadDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanPad(desc, request), request);
  }
  std::unique_ptr<Op> PlanTranspose(const TransposeDesc& desc, const OpRequest& request) override {
    return Own(real_.PlanTranspose(desc, request), request);
  }
  std::unique_ptr<Op> PlanPositionEmbedding(const OpRequest& request) override {
    return Own(real_.PlanPositionEmbedding(request), request);
  }

 private:
  KernelTimer& Timer(const std::string& what) { return TimerOf(layer, what, timers_); }

  /// A primitive on memory of its own.
  void Direct(const std::string& what, const dnnl::primitive_desc_base& desc,
              const std::vector<int>& args) {
    struct Call {
      dnnl::primitive primitive;
      std::vector<dnnl::memory> memories;
      std::vector<std::shared_ptr<Buffer>> buffers;
      std::vector<dnnl_exec_arg_t> args;
    };
    auto call = std::make_shared<Call>();
    call->primitive = dnnl::primitive(desc.get());
    for (const int arg : args) {
      const Desc memory = desc.query_md(dnnl::query::exec_arg_md, arg);
      call->buffers.push_back(MakeMemory(real_, memory.get_size()));
      // Indices of maxima: any values would not do.
      if (arg == DNNL_ARG_WORKSPACE) {
        std::fill_n(call->buffers.back()->data(), memory.get_size(), std::byte{0});
      }
      call->memories.emplace_back(memory, engine_, call->buffers.back()->data());
      call->args.push_back({arg, call->memories.back().get()});
    }
    Timer(what).candidates.push_back(
        {.run =
             [call, stream = stream_] {
               const dnnl_status_t status =
                   dnnl_primitive_execute(call->primitive.get(), stream.get(),
                                          static_cast<int>(call->args.size()), call->args.data());
               PD_CHECK(status == dnnl_success, "status {}", static_cast<int>(status));
             },
         .times_ms = {}});
  }

  std::unique_ptr<Op> Own(std::unique_ptr<Op> op, const OpRequest& request);
  void InnerProduct(const LinearDesc& desc, const OpRequest& request, Tag weights);
  void Matmul(const LinearDesc& desc, const OpRequest& request);

  Backend& real_;
  std::vector<KernelTimer>* timers_;
  dnnl::engine engine_;
  dnnl::stream stream_;
};

std::unique_ptr<Op> DirectKernels::PlanConv2d(const Conv2dDesc& desc, const OpRequest& request) {
  using namespace dnnl;
  const Shape& in = request.x[0].dims;
  Dims dilation, stride, padding, out = {in[0], desc.out_channels};
  for (int i = 0; i < 2; ++i) {
    dilation.push_back(desc.dilation[i] - 1);
    stride.push_back(desc.stride[i]);
    padding.push_back(desc.padding[i]);
    const int64_t extent = (desc.kernel[i] - 1) * desc.dilation[i] + 1;
    out.push_back((in[2 + i] + 2 * desc.padding[i] - extent) / desc.stride[i] + 1);
  }
  Dims weights = {desc.out_channels, in[1] / desc.groups, desc.kernel[0], desc.kernel[1]};
  if (desc.groups > 1) {
    weights[0] /= desc.groups;
    weights.insert(weights.begin(), desc.groups);
  }
  const Desc bias({desc.out_channels}, kF32, Tag::x);
  for (const auto way : {algorithm::convolution_direct, algorithm::convolution_winograd}) {
    const convolution_forward::primitive_desc forward(
        {kTraining, way, Any(in), Any(weights), bias, Any(out), stride, dilation, padding, padding},
        dnnl::primitive_attr(), engine_, /*allow_empty=*/true);
    if (forward.get(true) == nullptr) continue;  // oneDNN has no Winograd kernel for this shape
    Direct("forward", forward, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST});
    const convolution_backward_weights::primitive_desc gradient(
        {way, Any(in), Any(weights), bias, Any(out), stride, dilation, padding, padding},
        dnnl::primitive_attr(), engine_, forward, /*allow_empty=*/true);
    if (gradient.get(true) != nullptr) {
      Direct("backward weights", gradient,
             {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS});
    }
    if (!request.wants_dx[0]) continue;
    const convolution_backward_data::primitive_desc data(
        {way, Any(in), Any(weights), Any(out), stride, dilation, padding, padding},
        dnnl::primitive_attr(), engine_, forward, /*allow_empty=*/true);
    if (data.get(true) != nullptr) {
      Direct("backward data", data, {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC});
    }
  }
  return nullptr;
}

void DirectKernels::InnerProduct(const LinearDesc& desc, const OpRequest& request, Tag weights) {
  using namespace dnnl;
  const int64_t in = request.x[0].dims.back();
  const int64_t rows = Elements(request.x[0].dims) / in;
  const Desc x({rows, in}, kF32, Tag::ab);
  const Desc y({rows, desc.out_features}, kF32, Tag::ab);
  const Desc w({desc.out_features, in}, kF32, weights);
  const Desc bias({desc.out_features}, kF32, Tag::x);
  const inner_product_forward::primitive_desc forward({kTraining, x, w, bias, y}, engine_);
  Direct("forward", forward, {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST});
  const inner_product_backward_weights::primitive_desc gradient({x, w, bias, y}, engine_, forward);
  Direct("backward weights", gradient,
         {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS});
  if (!request.wants_dx[0]) return;
  const inner_product_backward_data::primitive_desc data({x, w, y}, engine_, forward);
  Direct("backward data", data, {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC});
}

void DirectKernels::Matmul(const LinearDesc& desc, const OpRequest& request) {
  const int64_t in = request.x[0].dims.back();
  const int64_t rows = Elements(request.x[0].dims) / in;
  const Desc x({rows, in}, kF32, Tag::ab);
  const Desc y({rows, desc.out_features}, kF32, Tag::ab);
  const Desc bias({1, desc.out_features}, kF32, Tag::ab);
  for (const bool transposed : {false, true}) {
    const Desc w({in, desc.out_features}, kF32, transposed ? Tag::ba : Tag::ab);
    Direct("forward", dnnl::matmul::primitive_desc({x, w, bias, y}, engine_),
           {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST});
    if (!request.wants_dx[0]) continue;
    const Desc back({desc.out_features, in}, kF32, transposed ? Tag::ba : Tag::ab);
    Direct("backward data", dnnl::matmul::primitive_desc({y, back, x}, engine_),
           {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST});
  }
}

std::unique_ptr<Op> DirectKernels::PlanLinear(const LinearDesc& desc, const OpRequest& request) {
  for (const Tag weights : {Tag::any, Tag::ab, Tag::ba}) InnerProduct(desc, request, weights);
  Matmul(desc, request);
  return nullptr;
}

std::unique_ptr<Op> DirectKernels::PlanPool2d(const Pool2dDesc& desc, const OpRequest& request) {
  using namespace dnnl;
  if (desc.kind != Pool2dDesc::Kind::kMax) return Own(real_.PlanPool2d(desc, request), request);
  const Shape& in = request.x[0].dims;
  const Dims out = {in[0], in[1], desc.out[0], desc.out[1]};
  Dims kernel, stride, before, after;
  for (int i = 0; i < 2; ++i) {
    kernel.push_back(desc.kernel[i]);
    stride.push_back(desc.stride[i]);
    before.push_back(desc.padding[i]);
    after.push_back((desc.out[i] - 1) * desc.stride[i] + desc.kernel[i] - in[2 + i] -
                    desc.padding[i]);
  }
  for (const Tag tag : {Tag::nChw16c, Tag::nChw8c, Tag::nchw, Tag::nhwc}) {
    const Desc x(in, kF32, tag);
    const Desc y(out, kF32, tag);
    const auto max = algorithm::pooling_max;
    const pooling_forward::primitive_desc forward(
        {kTraining, max, x, y, stride, kernel, before, after}, engine_);
    Direct("forward", forward, {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WORKSPACE});
    const pooling_backward::primitive_desc backward({max, x, y, stride, kernel, before, after},
                                                    engine_, forward);
    Direct("backward data", backward, {DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC, DNNL_ARG_WORKSPACE});
  }
  return nullptr;
}

std::unique_ptr<Op> DirectKernels::PlanActivation(Activation kind, const OpRequest& request) {
  using namespace dnnl;
  if (kind != Activation::kRelu) return Own(real_.PlanActivation(kind, request), request);
  const Desc x({static_cast<int64_t>(request.x[0].stored())}, kF32, Tag::x);
  const auto relu = algorithm::eltwise_relu_use_dst_for_bwd;
  const eltwise_forward::primitive_desc forward({kTraining, relu, x, 0.0F}, engine_);
  Direct("forward", forward, {DNNL_ARG_SRC, DNNL_ARG_DST});
  const eltwise_backward::primitive_desc backward({relu, x, x, 0.0F}, engine_, forward);
  Direct("backward data", backward, {DNNL_ARG_DST, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC});
  return Own(real_.PlanActivation(kind, request), request);
}

/// An operation of the backend itself.
std::unique_ptr<Op> DirectKernels::Own(std::unique_ptr<Op> op, const OpRequest& request) {
  AddOpTimers(real_, std::move(op), request, layer, timers_);
  return nullptr;
}

}  // namespace

std::vector<KernelTimer> MakeKernelTimers(const Model& model, Backend& backend, int64_t batch) {
  std::vector<KernelTimer> timers;
  DirectKernels direct(backend, &timers);
  const ModelPlan plan(model, backend, batch, 1);
  for (const Model::Node& node : model.layers()) {
    OpRequest request;
    for (const TensorId input : node.inputs) request.x.push_back(plan.layout(input));
    request.wants_dx = node.wants_dx;
    direct.layer = node.layer->name();
    node.layer->Plan(direct, request, 1);
  }
  return timers;
}

}  // namespace pd::bench
