#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

namespace pd::cuda {
namespace {

/// An index without a row cannot be refused here without waiting for the device: its row of y is
/// NaN.
class Embedding : public CudaOp {
 public:
  Embedding(const Context& context, const EmbeddingDesc& desc, const OpRequest& request)
      : CudaOp(context) {
    const Layout& x = DenseInput(request, 0, "embedding", DType::kI32);
    PD_CHECK(desc.count > 0 && desc.dim > 0, "embedding: {} rows of {}", desc.count, desc.dim);
    shape_ = {.count = ToInt(Elements(x.dims), "embedding", "the number of indices"),
              .rows = desc.count,
              .dim = desc.dim};
    Shape y = x.dims;
    y.push_back(desc.dim);
    info_.y = DenseLayout(std::move(y), DType::kF32);
    info_.params.push_back(DenseLayout({desc.count, desc.dim}, DType::kF32));
    info_.workspace_bytes = 2 * static_cast<size_t>(shape_.count) * sizeof(int32_t);
    info_.backward_reads_x = true;
    CheckParams(request, info_, "embedding");
  }

  void Forward(const OpArgs& args) override {
    PD_CUDA(LaunchEmbedding(Floats(args.params[0]), static_cast<const int32_t*>(args.x[0]),
                            Floats(args.y), shape_, stream()));
  }

  /// An index has no gradient.
  void BackwardData(const OpArgs& /*args*/) override {}

  void BackwardWeights(const OpArgs& args) override {
    PD_CUDA(LaunchEmbeddingGradient(static_cast<const int32_t*>(args.x[0]), Floats(args.dy),
                                    Floats(args.dparams[0]), static_cast<int32_t*>(args.workspace),
                                    shape_, stream()));
  }

 private:
  EmbeddingShape shape_;
};

/// A bias for each element of a sample.
class PositionEmbedding : public CudaOp {
 public:
  PositionEmbedding(const Context& context, const OpRequest& request) : CudaOp(context) {
    info_.y = DenseInput(request, 0, "position_embedding");
    const Shape& x = info_.y.dims;
    shape_ = {x[0], ElementsFrom(x, 1), 1};
    info_.params.push_back(DenseLayout(Shape(x.begin() + 1, x.end()), DType::kF32));
    CheckParams(request, info_, "position_embedding");
  }

  void Forward(const OpArgs& args) override {
    CopyAsync(args.y, args.x[0], info_.y.bytes);
    PD_CUDA(LaunchAddBias(Floats(args.y), Floats(args.params[0]), shape_, stream()));
  }
  void BackwardData(const OpArgs& args) override { CopyAsync(args.dx[0], args.dy, info_.y.bytes); }
  void BackwardWeights(const OpArgs& args) override {
    PD_CUDA(LaunchBiasGradient(Floats(args.dy), Floats(args.dparams[0]), shape_, stream()));
  }

 private:
  ChannelShape shape_;
};

}  // namespace

std::unique_ptr<Op> MakeEmbedding(const Context& context, const EmbeddingDesc& desc,
                                  const OpRequest& request) {
  return std::make_unique<Embedding>(context, desc, request);
}
std::unique_ptr<Op> MakePositionEmbedding(const Context& context, const OpRequest& request) {
  return std::make_unique<PositionEmbedding>(context, request);
}

}  // namespace pd::cuda
