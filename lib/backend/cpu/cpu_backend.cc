#include "backend/cpu/cpu_backend.h"

#include <fmt/format.h>
#include <omp.h>

#include <cstring>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/elementwise.h"
#include "backend/host_memory.h"
#include "base/error.h"

namespace pd {
namespace {

/// Calls a planning function; oneDNN's exceptions become ours.
template <typename F>
auto Plan(const char* what, F f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    Throw(ErrorCode::kDevice, "{}: oneDNN: {} (status {})", what, error.message,
          static_cast<int>(error.status));
  }
}

std::string InstructionSet() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE41";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2_VNNI";
    case dnnl::cpu_isa::avx512_core:
      return "AVX512_CORE";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX512_CORE_VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX512_CORE_BF16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX512_CORE_AMX";
    default:
      return "another set";
  }
}

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(int threads) {
    omp_set_num_threads(threads);
    context_ = Plan("cpu", [&] {
      const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
      return cpu::Context{.engine = engine, .stream = dnnl::stream(engine), .threads = threads};
    });
  }

  std::string_view kind() const override { return "cpu"; }
  std::string name() const override { return ProcessorName(); }
  std::string libraries() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  }
  int threads() const override { return context_.threads; }
  std::string instructions() const override { return InstructionSet(); }

  Buffer Allocate(size_t bytes) override { return AllocateHost(bytes); }
  void Copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }

  void ToDense(const Layout& layout, const void* inner, void* dense) override {
    if (layout.dense()) {
      std::memcpy(dense, inner, layout.bytes);
    } else {
      cpu::CopyToDense(context_, layout, inner, dense);
    }
  }
  void FromDense(const Layout& layout, const void* dense, void* inner) override {
    if (layout.dense()) {
      std::memcpy(inner, dense, layout.bytes);
    } else {
      cpu::CopyFromDense(context_, layout, dense, inner);
    }
  }

  void Accumulate(void* acc, const void* x, size_t count) override {
    auto* sum = static_cast<float*>(acc);
    const auto* term = static_cast<const float*>(x);
    ForRanges(count, [&](int64_t begin, int64_t end) {
      AccumulateHost(sum + begin, term + begin, static_cast<size_t>(end - begin));
    });
  }

  void Sgd(const SgdArgs& args) override {
    ForRanges(args.count, [&](int64_t begin, int64_t end) {
      SgdArgs part = args;
      part.w = static_cast<const float*>(args.w) + begin;
      part.g = static_cast<const float*>(args.g) + begin;
      if (args.m != nullptr) part.m = static_cast<float*>(args.m) + begin;
      part.w_out = static_cast<float*>(args.w_out) + begin;
      part.count = static_cast<size_t>(end - begin);
      SgdHostF32(part);
    });
  }

  std::unique_ptr<Op> PlanConv2d(const Conv2dDesc& desc, const OpRequest& request) override {
    return Plan("conv2d", [&] { return cpu::MakeConv2d(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanLinear(const LinearDesc& desc, const OpRequest& request) override {
    return Plan("linear", [&] { return cpu::MakeLinear(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanPool2d(const Pool2dDesc& desc, const OpRequest& request) override {
    return Plan("pool2d", [&] { return cpu::MakePool2d(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanActivation(Activation kind, const OpRequest& request) override {
    return Plan("activation", [&] { return cpu::MakeActivation(context_, kind, request); });
  }
  std::unique_ptr<Op> PlanReshape(const Shape& shape, const OpRequest& request) override {
    return Plan("reshape", [&] { return cpu::MakeReshape(context_, shape, request); });
  }
  std::unique_ptr<Op> PlanDropout(const DropoutDesc& desc, const OpRequest& request) override {
    return Plan("dropout", [&] { return cpu::MakeDropout(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanBatchNorm(const BatchNormDesc& desc, const OpRequest& request) override {
    return Plan("batch_norm", [&] { return cpu::MakeBatchNorm(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanLrn(const LrnDesc& desc, const OpRequest& request) override {
    return Plan("lrn", [&] { return cpu::MakeLrn(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanAdd(const OpRequest& request) override {
    return Plan("add", [&] { return cpu::MakeAdd(context_, request); });
  }
  std::unique_ptr<Op> PlanConcat(int64_t axis, const OpRequest& request) override {
    return Plan("concat", [&] { return cpu::MakeConcat(context_, axis, request); });
  }
  std::unique_ptr<Op> PlanSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc& desc,
                                              const OpRequest& request) override {
    return Plan("softmax_cross_entropy",
                [&] { return cpu::MakeSoftmaxCrossEntropy(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanGelu(const GeluDesc& desc, const OpRequest& request) override {
    return Plan("gelu", [&] { return cpu::MakeGelu(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanEmbedding(const EmbeddingDesc& desc, const OpRequest& request) override {
    return Plan("embedding", [&] { return cpu::MakeEmbedding(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanLayerNorm(const LayerNormDesc& desc, const OpRequest& request) override {
    return Plan("layer_norm", [&] { return cpu::MakeLayerNorm(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanAttention(const AttentionDesc& desc, const OpRequest& request) override {
    return Plan("attention", [&] { return cpu::MakeAttention(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanLstm(const LstmDesc& desc, const OpRequest& request) override {
    return Plan("lstm", [&] { return cpu::MakeLstm(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanSlice(const SliceDesc& desc, const OpRequest& request) override {
    return Plan("slice", [&] { return cpu::MakeSlice(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanPad(const PadDesc& desc, const OpRequest& request) override {
    return Plan("pad", [&] { return cpu::MakePad(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanTranspose(const TransposeDesc& desc, const OpRequest& request) override {
    return Plan("transpose", [&] { return cpu::MakeTranspose(context_, desc, request); });
  }
  std::unique_ptr<Op> PlanPositionEmbedding(const OpRequest& request) override {
    return Plan("position_embedding",
                [&] { return cpu::MakePositionEmbedding(context_, request); });
  }

 private:
  template <typename F>
  void ForRanges(size_t count, F f) const {
    cpu::ForRanges(context_.threads, static_cast<int64_t>(count), cpu::kElementsAThread, f);
  }

  cpu::Context context_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(int threads) {
  return std::make_unique<CpuBackend>(threads);
}

}  // namespace pd
