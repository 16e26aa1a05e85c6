#include <algorithm>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/dense_inputs.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/elementwise.h"
#include "backend/vectorize.h"

namespace pd::cpu {
namespace {

class Embedding : public CpuOp {
 public:
  Embedding(const Context& context, const EmbeddingDesc& desc, const OpRequest& request)
      : CpuOp(context), desc_(desc) {
    const Layout& x = request.x.at(0);
    PD_CHECK(x.dense() && x.dtype == DType::kI32 && desc.count > 0 && desc.dim > 0,
             "embedding: {} rows of {} for {}", desc.count, desc.dim, ToString(x.dims));
    indices_ = Elements(x.dims);
    sample_ = indices_ / x.dims[0];
    Shape y = x.dims;
    y.push_back(desc.dim);
    info_.y = DenseLayout(std::move(y), DType::kF32);
    info_.params.push_back(DenseLayout({desc.count, desc.dim}, DType::kF32));
    info_.backward_reads_x = true;
  }

  void Forward(const OpArgs& args) override {
    const auto* index = static_cast<const int32_t*>(args.x[0]);
    for (int64_t i = 0; i < indices_; ++i) {
      PD_REQUIRE(index[i] >= 0 && index[i] < desc_.count,
                 "minibatch {}: sample {} has index {}, expected one of 0 to {}", args.minibatch,
                 i / sample_, index[i], desc_.count - 1);
    }
    const float* weight = Floats(args.params[0]);
    float* y = Floats(args.y);
    ForRanges(context_.threads, indices_, RowsAThread(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::copy_n(weight + index[i] * desc_.dim, desc_.dim, y + i * desc_.dim);
      }
    });
  }

  /// An index has no gradient.
  void BackwardData(const OpArgs& /*args*/) override {}

  /// Each thread looks through all indices for those of its own rows, so that a row is summed in
  /// the order of the elements whatever their number.
  void BackwardWeights(const OpArgs& args) override {
    const auto* index = static_cast<const int32_t*>(args.x[0]);
    const float* dy = Floats(args.dy);
    float* dweight = Floats(args.dparams[0]);
    ForRanges(context_.threads, desc_.count, RowsAThread(), [&](int64_t begin, int64_t end) {
      std::fill(dweight + begin * desc_.dim, dweight + end * desc_.dim, 0.0F);
      for (int64_t i = 0; i < indices_; ++i) {
        if (index[i] < begin || index[i] >= end) continue;
        AccumulateHost(dweight + index[i] * desc_.dim, dy + i * desc_.dim,
                       static_cast<size_t>(desc_.dim));
      }
    });
  }

 private:
  int64_t RowsAThread() const { return std::max<int64_t>(1, kElementsAThread / desc_.dim); }

  EmbeddingDesc desc_;
  int64_t indices_ = 0, sample_ = 0;  ///< In a minibatch; in a sample of it.
};

PD_CLONES void Sum(const float* a, const float* b, float* sum, int64_t count) {
  PD_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

class PositionEmbedding : public CpuOp {
 public:
  PositionEmbedding(const Context& context, const OpRequest& request) : CpuOp(context) {
    info_.y = request.x.at(0);
    const Shape& x = info_.y.dims;
    samples_ = x[0];
    sample_ = ElementsFrom(x, 1);
    info_.params.push_back(DenseLayout(Shape(x.begin() + 1, x.end()), DType::kF32));
  }

  void Forward(const OpArgs& args) override {
    const float* x = Floats(args.x[0]);
    const float* weight = Floats(args.params[0]);
    float* y = Floats(args.y);
    ForRanges(context_.threads, samples_, SamplesAThread(), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        Sum(x + n * sample_, weight, y + n * sample_, sample_);
      }
    });
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] != nullptr) std::copy_n(Floats(args.dy), samples_ * sample_, Floats(args.dx[0]));
  }

  void BackwardWeights(const OpArgs& args) override {
    const float* dy = Floats(args.dy);
    float* dweight = Floats(args.dparams[0]);
    ForRanges(context_.threads, sample_, kElementsAThread, [&](int64_t begin, int64_t end) {
      std::copy(dy + begin, dy + end, dweight + begin);
      for (int64_t n = 1; n < samples_; ++n) {
        AccumulateHost(dweight + begin, dy + n * sample_ + begin, static_cast<size_t>(end - begin));
      }
    });
  }

 private:
  int64_t SamplesAThread() const { return std::max<int64_t>(1, kElementsAThread / sample_); }

  int64_t samples_ = 0, sample_ = 0;  ///< Elements of a sample.
};

}  // namespace

std::unique_ptr<Op> MakeEmbedding(const Context& context, const EmbeddingDesc& desc,
                                  const OpRequest& request) {
  return std::make_unique<Embedding>(context, desc, request);
}
std::unique_ptr<Op> MakePositionEmbedding(const Context& context, const OpRequest& request) {
  return OnDenseInputs(context, request, [&](const OpRequest& dense) {
    return std::make_unique<PositionEmbedding>(context, dense);
  });
}

}  // namespace pd::cpu
