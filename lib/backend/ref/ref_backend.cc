#include "backend/ref/ref_backend.h"

#include <cstring>
#include <type_traits>

#include "backend/elementwise.h"
#include "backend/host_memory.h"
#include "backend/ref/attention.h"
#include "backend/ref/conv2d.h"
#include "backend/ref/elementwise_ops.h"
#include "backend/ref/embedding.h"
#include "backend/ref/layer_norm.h"
#include "backend/ref/linear.h"
#include "backend/ref/loss.h"
#include "backend/ref/lstm.h"
#include "backend/ref/norm.h"
#include "backend/ref/pool2d.h"
#include "backend/ref/ref_op.h"
#include "backend/ref/shape_ops.h"

namespace pd {
namespace {

template <typename T>
class RefBackend : public Backend {
 public:
  std::string_view kind() const override { return std::is_same_v<T, double> ? "ref64" : "ref"; }
  std::string name() const override { return ProcessorName(); }
  std::string libraries() const override { return "none"; }
  int threads() const override { return 1; }
  DType dtype() const override { return ref::kDTypeOf<T>; }

  Buffer Allocate(size_t bytes) override { return AllocateHost(bytes); }

  void Copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }

  void ToDense(const Layout& layout, const void* inner, void* dense) override {
    CopyDense(layout, inner, dense);
  }
  void FromDense(const Layout& layout, const void* dense, void* inner) override {
    CopyDense(layout, dense, inner);
  }

  void Accumulate(void* acc, const void* x, size_t count) override {
    AccumulateHost(ref::Out<T>(acc), ref::In<T>(x), count);
  }
  void Sgd(const SgdArgs& args) override {
    if constexpr (std::is_same_v<T, double>) {
      SgdHostF64(args);
    } else {
      SgdHostF32(args);
    }
  }

  std::unique_ptr<Op> PlanConv2d(const Conv2dDesc& desc, const OpRequest& request) override {
    return ref::MakeConv2d<T>(desc, request);
  }
  std::unique_ptr<Op> PlanLinear(const LinearDesc& desc, const OpRequest& request) override {
    return ref::MakeLinear<T>(desc, request);
  }
  std::unique_ptr<Op> PlanPool2d(const Pool2dDesc& desc, const OpRequest& request) override {
    return ref::MakePool2d<T>(desc, request);
  }
  std::unique_ptr<Op> PlanActivation(Activation kind, const OpRequest& request) override {
    return ref::MakeActivation<T>(kind, request);
  }
  std::unique_ptr<Op> PlanReshape(const Shape& shape, const OpRequest& request) override {
    return ref::MakeReshape<T>(shape, request);
  }
  std::unique_ptr<Op> PlanDropout(const DropoutDesc& desc, const OpRequest& request) override {
    return ref::MakeDropout<T>(desc, request);
  }
  std::unique_ptr<Op> PlanBatchNorm(const BatchNormDesc& desc, const OpRequest& request) override {
    return ref::MakeBatchNorm<T>(desc, request);
  }
  std::unique_ptr<Op> PlanLrn(const LrnDesc& desc, const OpRequest& request) override {
    return ref::MakeLrn<T>(desc, request);
  }
  std::unique_ptr<Op> PlanAdd(const OpRequest& request) override {
    return ref::MakeAdd<T>(request);
  }
  std::unique_ptr<Op> PlanConcat(int64_t axis, const OpRequest& request) override {
    return ref::MakeConcat<T>(axis, request);
  }
  std::unique_ptr<Op> PlanSoftmaxCrossEntropy(const SoftmaxCrossEntropyDesc& desc,
                                              const OpRequest& request) override {
    return ref::MakeSoftmaxCrossEntropy<T>(desc, request);
  }
  std::unique_ptr<Op> PlanGelu(const GeluDesc& desc, const OpRequest& request) override {
    return ref::MakeGelu<T>(desc, request);
  }
  std::unique_ptr<Op> PlanEmbedding(const EmbeddingDesc& desc, const OpRequest& request) override {
    return ref::MakeEmbedding<T>(desc, request);
  }
  std::unique_ptr<Op> PlanLayerNorm(const LayerNormDesc& desc, const OpRequest& request) override {
    return ref::MakeLayerNorm<T>(desc, request);
  }
  std::unique_ptr<Op> PlanAttention(const AttentionDesc& desc, const OpRequest& request) override {
    return ref::MakeAttention<T>(desc, request);
  }
  std::unique_ptr<Op> PlanLstm(const LstmDesc& desc, const OpRequest& request) override {
    return ref::MakeLstm<T>(desc, request);
  }
  std::unique_ptr<Op> PlanSlice(const SliceDesc& desc, const OpRequest& request) override {
    return ref::MakeSlice<T>(desc, request);
  }
  std::unique_ptr<Op> PlanPad(const PadDesc& desc, const OpRequest& request) override {
    return ref::MakePad<T>(desc, request);
  }
  std::unique_ptr<Op> PlanTranspose(const TransposeDesc& desc, const OpRequest& request) override {
    return ref::MakeTranspose<T>(desc, request);
  }
  std::unique_ptr<Op> PlanPositionEmbedding(const OpRequest& request) override {
    return ref::MakePositionEmbedding<T>(request);
  }

 private:
  static void CopyDense(const Layout& layout, const void* from, void* to) {
    PD_CHECK(layout.dense(), "a layout of another backend, dims {}", ToString(layout.dims));
    std::memcpy(to, from, layout.bytes);
  }
};

}  // namespace

template <typename T>
std::unique_ptr<Backend> MakeRefBackend() {
  return std::make_unique<RefBackend<T>>();
}

template std::unique_ptr<Backend> MakeRefBackend<float>();
template std::unique_ptr<Backend> MakeRefBackend<double>();

}  // namespace pd
