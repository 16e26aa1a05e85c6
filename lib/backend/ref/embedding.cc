#include "backend/ref/embedding.h"

#include <algorithm>

#include "backend/ref/ref_op.h"

namespace pd::ref {
namespace {

template <typename T>
class Embedding : public Op {
 public:
  Embedding(const EmbeddingDesc& desc, const OpRequest& request) : desc_(desc) {
    const Layout& x = DenseInput(request, 0, DType::kI32, "embedding");
    PD_CHECK(desc.count > 0 && desc.dim > 0, "embedding: {} rows of {}", desc.count, desc.dim);
    indices_ = Elements(x.dims);
    sample_ = indices_ / x.dims[0];
    Shape y = x.dims;
    y.push_back(desc.dim);
    info_.y = DenseLayout(std::move(y), kDTypeOf<T>);
    info_.params.push_back(DenseLayout({desc.count, desc.dim}, kDTypeOf<T>));
    info_.workspace_bytes = static_cast<size_t>(desc.count * desc.dim) * sizeof(double);
    info_.backward_reads_x = true;
    CheckParams(request, info_, "embedding");
  }

  void Forward(const OpArgs& args) override {
    const int32_t* index = In<int32_t>(args.x[0]);
    for (int64_t i = 0; i < indices_; ++i) {
      PD_REQUIRE(index[i] >= 0 && index[i] < desc_.count,
                 "minibatch {}: sample {} has index {}, expected one of 0 to {}", args.minibatch,
                 i / sample_, index[i], desc_.count - 1);
    }
    T* y = Out<T>(args.y);
    for (int64_t i = 0; i < indices_; ++i) {
      std::copy_n(In<T>(args.params[0]) + index[i] * desc_.dim, desc_.dim, y + i * desc_.dim);
    }
  }

  /// An index has no gradient.
  void BackwardData(const OpArgs& /*args*/) override {}

  void BackwardWeights(const OpArgs& args) override {
    const int32_t* index = In<int32_t>(args.x[0]);
    const T* dy = In<T>(args.dy);
    double* sum = Out<double>(args.workspace);
    const int64_t count = desc_.count * desc_.dim;
    std::fill_n(sum, count, 0.0);
    for (int64_t i = 0; i < indices_; ++i) {
      double* row = sum + index[i] * desc_.dim;
      for (int64_t d = 0; d < desc_.dim; ++d) row[d] += static_cast<double>(*dy++);
    }
    T* dweight = Out<T>(args.dparams[0]);
    for (int64_t i = 0; i < count; ++i) dweight[i] = static_cast<T>(sum[i]);
  }

 private:
  EmbeddingDesc desc_;
  int64_t indices_, sample_;  ///< In a minibatch; in a sample of it.
};

template <typename T>
class PositionEmbedding : public Op {
 public:
  explicit PositionEmbedding(const OpRequest& request) {
    info_.y = MainInput(request, kDTypeOf<T>, 0, "position_embedding");
    const Shape& x = info_.y.dims;
    samples_ = x[0];
    sample_ = ElementsFrom(x, 1);
    info_.params.push_back(DenseLayout(Shape(x.begin() + 1, x.end()), kDTypeOf<T>));
    CheckParams(request, info_, "position_embedding");
  }

  void Forward(const OpArgs& args) override {
    const T* x = In<T>(args.x[0]);
    const T* weight = In<T>(args.params[0]);
    T* y = Out<T>(args.y);
    for (int64_t i = 0; i < samples_ * sample_; ++i) y[i] = x[i] + weight[i % sample_];
  }

  void BackwardData(const OpArgs& args) override {
    std::copy_n(In<T>(args.dy), samples_ * sample_, Out<T>(args.dx[0]));
  }

  void BackwardWeights(const OpArgs& args) override {
    const T* dy = In<T>(args.dy);
    for (int64_t i = 0; i < sample_; ++i) {
      double sum = 0;
      for (int64_t n = 0; n < samples_; ++n) sum += static_cast<double>(dy[n * sample_ + i]);
      Out<T>(args.dparams[0])[i] = static_cast<T>(sum);
    }
  }

 private:
  int64_t samples_, sample_;
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeEmbedding(const EmbeddingDesc& desc, const OpRequest& request) {
  return std::make_unique<Embedding<T>>(desc, request);
}
template <typename T>
std::unique_ptr<Op> MakePositionEmbedding(const OpRequest& request) {
  return std::make_unique<PositionEmbedding<T>>(request);
}

template std::unique_ptr<Op> MakeEmbedding<float>(const EmbeddingDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeEmbedding<double>(const EmbeddingDesc&, const OpRequest&);
template std::unique_ptr<Op> MakePositionEmbedding<float>(const OpRequest&);
template std::unique_ptr<Op> MakePositionEmbedding<double>(const OpRequest&);

}  // namespace pd::ref
