#include "backend/ref/linear.h"

#include <algorithm>

#include "backend/ref/ref_op.h"

namespace pd::ref {
namespace {

/// Sum of a[i]·b[i] in double: eight partial sums, then those in order.
template <typename T>
double Dot(const T* a, const T* b, int64_t count) {
  constexpr int64_t kLanes = 8;
  double lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      lane[j] += static_cast<double>(a[i + j]) * static_cast<double>(b[i + j]);
    }
  }
  for (int64_t j = 0; i < count; ++i, ++j) {
    lane[j] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  double sum = 0;
  for (const double part : lane) sum += part;
  return sum;
}

template <typename T>
class Linear : public Op {
 public:
  Linear(const LinearDesc& desc, const OpRequest& request) : bias_(desc.bias) {
    const Layout& x = MainInput(request, kDTypeOf<T>, 0, "linear");
    in_ = x.dims.back();
    out_ = desc.out_features;
    PD_CHECK(out_ > 0, "linear: {} output features", out_);
    rows_ = Elements(x.dims) / in_;
    Shape y = x.dims;
    y.back() = out_;
    info_.y = DenseLayout(y, kDTypeOf<T>);
    info_.params.push_back(DenseLayout({out_, in_}, kDTypeOf<T>));
    if (bias_) info_.params.push_back(DenseLayout({out_}, kDTypeOf<T>));
    info_.workspace_bytes = static_cast<size_t>(in_) * sizeof(double);
    info_.backward_reads_x = true;
    CheckParams(request, info_, "linear");
  }

  void Forward(const OpArgs& args) override {
    const T* x = In<T>(args.x[0]);
    const T* weight = In<T>(args.params[0]);
    T* y = Out<T>(args.y);
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t o = 0; o < out_; ++o) {
        const double start = bias_ ? static_cast<double>(In<T>(args.params[1])[o]) : 0.0;
        y[row * out_ + o] = static_cast<T>(start + Dot(x + row * in_, weight + o * in_, in_));
      }
    }
  }

  void BackwardData(const OpArgs& args) override {
    const T* dy = In<T>(args.dy);
    T* dx = Out<T>(args.dx[0]);
    for (int64_t row = 0; row < rows_; ++row) {
      CombineRows(dy + row * out_, 1, In<T>(args.params[0]), out_, args.workspace, dx + row * in_);
    }
  }

  void BackwardWeights(const OpArgs& args) override {
    const T* dy = In<T>(args.dy);
    T* dweight = Out<T>(args.dparams[0]);
    for (int64_t o = 0; o < out_; ++o) {
      CombineRows(dy + o, out_, In<T>(args.x[0]), rows_, args.workspace, dweight + o * in_);
      if (!bias_) continue;
      double sum = 0;
      for (int64_t row = 0; row < rows_; ++row) sum += static_cast<double>(dy[row * out_ + o]);
      Out<T>(args.dparams[1])[o] = static_cast<T>(sum);
    }
  }

 private:
  /// result [in] = Σ over `count` rows j of factor[j·step] · matrix[j, :].
  void CombineRows(const T* factor, int64_t step, const T* matrix, int64_t count, void* workspace,
                   T* result) const {
    double* sum = Out<double>(workspace);
    std::fill(sum, sum + in_, 0.0);
    for (int64_t j = 0; j < count; ++j) {
      const double scale = factor[j * step];
      const T* row = matrix + j * in_;
      for (int64_t i = 0; i < in_; ++i) sum[i] += scale * static_cast<double>(row[i]);
    }
    for (int64_t i = 0; i < in_; ++i) result[i] = static_cast<T>(sum[i]);
  }

  bool bias_;
  int64_t rows_, in_, out_;
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeLinear(const LinearDesc& desc, const OpRequest& request) {
  return std::make_unique<Linear<T>>(desc, request);
}

template std::unique_ptr<Op> MakeLinear<float>(const LinearDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeLinear<double>(const LinearDesc&, const OpRequest&);

}  // namespace pd::ref
