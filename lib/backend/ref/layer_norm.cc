#include "backend/ref/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "backend/ref/ref_op.h"

namespace pd::ref {
namespace {

template <typename T>
class LayerNorm : public Op {
 public:
  LayerNorm(const LayerNormDesc& desc, const OpRequest& request) : desc_(desc) {
    info_.y = MainInput(request, kDTypeOf<T>, 0, "layer_norm");
    width_ = info_.y.dims.back();
    rows_ = Elements(info_.y.dims) / width_;
    info_.params = {DenseLayout({width_}, kDTypeOf<T>), DenseLayout({width_}, kDTypeOf<T>)};
    info_.saved_bytes = 2 * static_cast<size_t>(rows_) * sizeof(double);
    info_.workspace_bytes = 2 * static_cast<size_t>(width_) * sizeof(double);
    info_.backward_reads_x = true;
    CheckParams(request, info_, "layer_norm");
  }

  void Forward(const OpArgs& args) override {
    const T* weight = In<T>(args.params[0]);
    const T* bias = In<T>(args.params[1]);
    for (int64_t row = 0; row < rows_; ++row) {
      const T* x = In<T>(args.x[0]) + row * width_;
      T* y = Out<T>(args.y) + row * width_;
      double sum = 0;
      for (int64_t i = 0; i < width_; ++i) sum += static_cast<double>(x[i]);
      const double mean = sum / static_cast<double>(width_);
      double squares = 0;
      for (int64_t i = 0; i < width_; ++i) squares += (x[i] - mean) * (x[i] - mean);
      const double inverse = 1 / std::sqrt(squares / static_cast<double>(width_) + desc_.eps);
      for (int64_t i = 0; i < width_; ++i) {
        y[i] = static_cast<T>((x[i] - mean) * inverse * weight[i] + bias[i]);
      }
      Out<double>(args.saved)[2 * row] = mean;
      Out<double>(args.saved)[2 * row + 1] = inverse;
    }
  }

  /// With z = (x - mean)·inverse and g = dy·weight: dx = inverse·(g - mean(g) - z·mean(g·z)).
  void BackwardData(const OpArgs& args) override {
    const T* weight = In<T>(args.params[0]);
    for (int64_t row = 0; row < rows_; ++row) {
      const T* x = In<T>(args.x[0]) + row * width_;
      const T* dy = In<T>(args.dy) + row * width_;
      T* dx = Out<T>(args.dx[0]) + row * width_;
      const double mean = In<double>(args.saved)[2 * row];
      const double inverse = In<double>(args.saved)[2 * row + 1];
      double sum = 0;
      double products = 0;
      for (int64_t i = 0; i < width_; ++i) {
        const double g = static_cast<double>(dy[i]) * static_cast<double>(weight[i]);
        sum += g;
        products += g * (x[i] - mean) * inverse;
      }
      sum /= static_cast<double>(width_);
      products /= static_cast<double>(width_);
      for (int64_t i = 0; i < width_; ++i) {
        const double g = static_cast<double>(dy[i]) * static_cast<double>(weight[i]);
        dx[i] = static_cast<T>(inverse * (g - sum - (x[i] - mean) * inverse * products));
      }
    }
  }

  /// dweight = Σ dy·z and dbias = Σ dy over the rows, in their order.
  void BackwardWeights(const OpArgs& args) override {
    double* dweight = Out<double>(args.workspace);
    double* dbias = dweight + width_;
    std::fill_n(dweight, 2 * width_, 0.0);
    for (int64_t row = 0; row < rows_; ++row) {
      const T* x = In<T>(args.x[0]) + row * width_;
      const T* dy = In<T>(args.dy) + row * width_;
      const double mean = In<double>(args.saved)[2 * row];
      const double inverse = In<double>(args.saved)[2 * row + 1];
      for (int64_t i = 0; i < width_; ++i) {
        dweight[i] += dy[i] * (x[i] - mean) * inverse;
        dbias[i] += static_cast<double>(dy[i]);
      }
    }
    for (int64_t i = 0; i < width_; ++i) {
      Out<T>(args.dparams[0])[i] = static_cast<T>(dweight[i]);
      Out<T>(args.dparams[1])[i] = static_cast<T>(dbias[i]);
    }
  }

 private:
  LayerNormDesc desc_;
  int64_t rows_, width_;
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeLayerNorm(const LayerNormDesc& desc, const OpRequest& request) {
  return std::make_unique<LayerNorm<T>>(desc, request);
}

template std::unique_ptr<Op> MakeLayerNorm<float>(const LayerNormDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeLayerNorm<double>(const LayerNormDesc&, const OpRequest&);

}  // namespace pd::ref
