#include "backend/ref/norm.h"

#include <algorithm>
#include <cmath>

#include "backend/ref/ref_op.h"

namespace pd::ref {
namespace {

/// A tensor [N,C,…] seen as [n, c, i].
struct Channels {
  explicit Channels(const Shape& dims)
      : samples(dims[0]), channels(dims[1]), inner(ElementsFrom(dims, 2)) {}

  int64_t At(int64_t n, int64_t c) const { return (n * channels + c) * inner; }
  int64_t values() const { return samples * inner; }  ///< A channel has so many.

  int64_t samples, channels, inner;
};

/// Sum of f(position) over one channel.
template <typename F>
double SumOver(const Channels& dims, int64_t c, F f) {
  double sum = 0;
  for (int64_t n = 0; n < dims.samples; ++n) {
    const int64_t start = dims.At(n, c);
    for (int64_t i = start; i < start + dims.inner; ++i) sum += f(i);
  }
  return sum;
}

template <typename F>
void ForEach(const Channels& dims, int64_t c, F f) {
  for (int64_t n = 0; n < dims.samples; ++n) {
    const int64_t start = dims.At(n, c);
    for (int64_t i = start; i < start + dims.inner; ++i) f(i);
  }
}

template <typename T>
class BatchNorm : public Op {
 public:
  BatchNorm(const BatchNormDesc& desc, const OpRequest& request)
      : desc_(desc), dims_(MainInput(request, kDTypeOf<T>, 0, "batch_norm").dims) {
    with_dx_ = request.wants_dx.at(0);
    info_.y = request.x[0];
    info_.params.assign(2, DenseLayout({dims_.channels}, kDTypeOf<T>));
    info_.saved_bytes = 2 * static_cast<size_t>(dims_.channels) * sizeof(double);
    info_.backward_reads_x = true;
    CheckParams(request, info_, "batch_norm");
  }

  void Forward(const OpArgs& args) override {
    const T* x = In<T>(args.x[0]);
    T* y = Out<T>(args.y);
    for (int64_t c = 0; c < dims_.channels; ++c) {
      double mean = static_cast<double>(In<T>(args.state[0])[c]);
      double variance = static_cast<double>(In<T>(args.state[1])[c]);
      if (args.training) Statistics(x, c, args, &mean, &variance);
      const double inverse = 1 / std::sqrt(variance + desc_.eps);
      if (args.training) {
        Out<double>(args.saved)[c] = mean;
        Out<double>(args.saved)[dims_.channels + c] = inverse;
      }
      const double scale = static_cast<double>(In<T>(args.params[0])[c]) * inverse;
      const double shift = static_cast<double>(In<T>(args.params[1])[c]);
      ForEach(dims_, c, [&](int64_t i) { y[i] = static_cast<T>((x[i] - mean) * scale + shift); });
    }
  }

  void BackwardData(const OpArgs& args) override { Backward(args, Out<T>(args.dx[0])); }
  void BackwardWeights(const OpArgs& args) override {
    if (!with_dx_) Backward(args, nullptr);
  }

 private:
  /// Mean and biased variance of the minibatch, in two passes; updates the running statistics.
  void Statistics(const T* x, int64_t c, const OpArgs& args, double* mean, double* variance) const {
    const auto values = static_cast<double>(dims_.values());
    const double m =
        SumOver(dims_, c, [&](int64_t i) { return static_cast<double>(x[i]); }) / values;
    const double squares = SumOver(dims_, c, [&](int64_t i) { return (x[i] - m) * (x[i] - m); });
    *mean = m;
    *variance = squares / values;
    const double unbiased = squares / std::max(1.0, values - 1);
    Update(Out<T>(args.state[0])[c], m);
    Update(Out<T>(args.state[1])[c], unbiased);
  }

  void Update(T& running, double fresh) const {
    running = static_cast<T>((1 - desc_.momentum) * running + desc_.momentum * fresh);
  }

  /// With z = (x - mean)·inverse: dweight = Σ dy·z, dbias = Σ dy,
  /// dx = weight·inverse·(dy - (dbias + z·dweight)/values).
  void Backward(const OpArgs& args, T* dx) const {
    const T* x = In<T>(args.x[0]);
    const T* dy = In<T>(args.dy);
    const auto values = static_cast<double>(dims_.values());
    for (int64_t c = 0; c < dims_.channels; ++c) {
      const double mean = In<double>(args.saved)[c];
      const double inverse = In<double>(args.saved)[dims_.channels + c];
      const auto normal = [&](int64_t i) { return (x[i] - mean) * inverse; };
      const double dweight = SumOver(dims_, c, [&](int64_t i) { return dy[i] * normal(i); });
      const double dbias = SumOver(dims_, c, [&](int64_t i) { return static_cast<double>(dy[i]); });
      Out<T>(args.dparams[0])[c] = static_cast<T>(dweight);
      Out<T>(args.dparams[1])[c] = static_cast<T>(dbias);
      if (dx == nullptr) continue;
      const double scale = static_cast<double>(In<T>(args.params[0])[c]) * inverse;
      ForEach(dims_, c, [&](int64_t i) {
        dx[i] = static_cast<T>(scale * (dy[i] - (dbias + normal(i) * dweight) / values));
      });
    }
  }

  BatchNormDesc desc_;
  Channels dims_;
  bool with_dx_ = false;
};

template <typename T>
class Lrn : public Op {
 public:
  Lrn(const LrnDesc& desc, const OpRequest& request)
      : desc_(desc), dims_(MainInput(request, kDTypeOf<T>, 0, "lrn").dims) {
    PD_CHECK(desc.size > 0, "lrn: size is {}", desc.size);
    info_.y = request.x[0];
    info_.workspace_bytes = 2 * static_cast<size_t>(dims_.channels) * sizeof(double);
    info_.backward_reads_x = true;
  }

  void Forward(const OpArgs& args) override {
    T* y = Out<T>(args.y);
    ForEachPixel([&](int64_t start) {
      const T* x = In<T>(args.x[0]) + start;
      for (int64_t c = 0; c < dims_.channels; ++c) {
        const double value = static_cast<double>(x[c * dims_.inner]);
        y[start + c * dims_.inner] = static_cast<T>(value * std::pow(Base(x, c), -desc_.beta));
      }
    });
  }

  /// With s the base of the power: dx_i = dy_i·s_i^-β - 2αβ/size · x_i · Σ_j dy_j·x_j·s_j^(-β-1)
  /// over the channels j whose window holds i.
  void BackwardData(const OpArgs& args) override {
    T* dx = Out<T>(args.dx[0]);
    double* power = Out<double>(args.workspace);  // s^-β
    double* share = power + dims_.channels;       // dy·x·s^(-β-1)
    const double factor = 2 * desc_.alpha * desc_.beta / static_cast<double>(desc_.size);
    ForEachPixel([&](int64_t start) {
      const T* x = In<T>(args.x[0]) + start;
      const T* dy = In<T>(args.dy) + start;
      for (int64_t c = 0; c < dims_.channels; ++c) {
        const double base = Base(x, c);
        power[c] = std::pow(base, -desc_.beta);
        share[c] = static_cast<double>(dy[c * dims_.inner]) *
                   static_cast<double>(x[c * dims_.inner]) * power[c] / base;
      }
      for (int64_t c = 0; c < dims_.channels; ++c) {
        const int64_t begin = std::max<int64_t>(0, c - (desc_.size - 1) / 2);
        const int64_t end = std::min(dims_.channels, c + desc_.size / 2 + 1);
        double sum = 0;
        for (int64_t j = begin; j < end; ++j) sum += share[j];
        dx[start + c * dims_.inner] =
            static_cast<T>(dy[c * dims_.inner] * power[c] - factor * x[c * dims_.inner] * sum);
      }
    });
  }

 private:
  /// f(position of channel 0) for each sample and place.
  template <typename F>
  void ForEachPixel(F f) const {
    for (int64_t n = 0; n < dims_.samples; ++n) {
      for (int64_t i = 0; i < dims_.inner; ++i) f(dims_.At(n, 0) + i);
    }
  }

  /// k + alpha/size · Σ x² over the window of channel c.
  double Base(const T* x, int64_t c) const {
    const int64_t begin = std::max<int64_t>(0, c - desc_.size / 2);
    const int64_t end = std::min(dims_.channels, c + (desc_.size - 1) / 2 + 1);
    double squares = 0;
    for (int64_t j = begin; j < end; ++j) {
      const double value = static_cast<double>(x[j * dims_.inner]);
      squares += value * value;
    }
    return desc_.k + desc_.alpha / static_cast<double>(desc_.size) * squares;
  }

  LrnDesc desc_;
  Channels dims_;
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeBatchNorm(const BatchNormDesc& desc, const OpRequest& request) {
  return std::make_unique<BatchNorm<T>>(desc, request);
}
template <typename T>
std::unique_ptr<Op> MakeLrn(const LrnDesc& desc, const OpRequest& request) {
  return std::make_unique<Lrn<T>>(desc, request);
}

template std::unique_ptr<Op> MakeBatchNorm<float>(const BatchNormDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeBatchNorm<double>(const BatchNormDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeLrn<float>(const LrnDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeLrn<double>(const LrnDesc&, const OpRequest&);

}  // namespace pd::ref
