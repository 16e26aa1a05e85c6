#include "backend/ref/elementwise_ops.h"

#include <algorithm>
#include <cmath>

#include "backend/ref/ref_op.h"
#include "base/random.h"

namespace pd::ref {
namespace {

template <typename T>
class ActivationOp : public Op {
 public:
  ActivationOp(Activation kind, const OpRequest& request) : kind_(kind) {
    info_.y = DenseInput(request, 0, kDTypeOf<T>, "activation");
    info_.backward_reads_y = true;
    count_ = Elements(info_.y.dims);
  }

  void Forward(const OpArgs& args) override {
    const T* x = In<T>(args.x[0]);
    T* y = Out<T>(args.y);
    for (int64_t i = 0; i < count_; ++i) y[i] = static_cast<T>(Value(x[i]));
  }

  void BackwardData(const OpArgs& args) override {
    const T* y = In<T>(args.y);
    const T* dy = In<T>(args.dy);
    T* dx = Out<T>(args.dx[0]);
    for (int64_t i = 0; i < count_; ++i) {
      dx[i] = static_cast<T>(Gradient(y[i], static_cast<double>(dy[i])));
    }
  }

 private:
  double Value(double x) const {
    switch (kind_) {
      case Activation::kRelu:
        return x <= 0 ? 0 : x;
      case Activation::kTanh:
        return std::tanh(x);
      case Activation::kSigmoid:
        return 1 / (1 + std::exp(-x));
    }
    return x;
  }

  double Gradient(double y, double dy) const {
    switch (kind_) {
      case Activation::kRelu:
        return y <= 0 ? 0 : dy;
      case Activation::kTanh:
        return dy * (1 - y * y);
      case Activation::kSigmoid:
        return dy * y * (1 - y);
    }
    return dy;
  }

  Activation kind_;
  int64_t count_;
};

template <typename T>
class Gelu : public Op {
 public:
  Gelu(const GeluDesc& desc, const OpRequest& request) : desc_(desc) {
    info_.y = DenseInput(request, 0, kDTypeOf<T>, "gelu");
    info_.backward_reads_x = true;
    count_ = Elements(info_.y.dims);
  }

  void Forward(const OpArgs& args) override {
    const T* x = In<T>(args.x[0]);
    T* y = Out<T>(args.y);
    for (int64_t i = 0; i < count_; ++i) {
      const auto value = static_cast<double>(x[i]);
      y[i] = static_cast<T>(value * Share(value));
    }
  }

  /// (x·s(x))' = s(x) + x·s'(x).
  void BackwardData(const OpArgs& args) override {
    const T* x = In<T>(args.x[0]);
    const T* dy = In<T>(args.dy);
    T* dx = Out<T>(args.dx[0]);
    for (int64_t i = 0; i < count_; ++i) {
      const auto value = static_cast<double>(x[i]);
      dx[i] = static_cast<T>(dy[i] * (Share(value) + value * Slope(value)));
    }
  }

 private:
  static constexpr double kCubic = 0.044715;
  static constexpr double kRoot = 0.79788456080286535588;  // √(2/π)

  /// What of x passes: Φ(x) or its approximation.
  double Share(double x) const {
    if (!desc_.tanh) return (1 + std::erf(x / std::sqrt(2.0))) / 2;
    return (1 + std::tanh(kRoot * (x + kCubic * x * x * x))) / 2;
  }

  double Slope(double x) const {
    if (!desc_.tanh) return kRoot / 2 * std::exp(-x * x / 2);
    const double t = std::tanh(kRoot * (x + kCubic * x * x * x));
    return (1 - t * t) / 2 * kRoot * (1 + 3 * kCubic * x * x);
  }

  GeluDesc desc_;
  int64_t count_;
};

template <typename T>
class Dropout : public Op {
 public:
  Dropout(const DropoutDesc& desc, const OpRequest& request) : desc_(desc) {
    PD_CHECK(desc.p >= 0 && desc.p <= 1, "dropout: p is {}", desc.p);
    info_.y = DenseInput(request, 0, kDTypeOf<T>, "dropout");
  }

  void Forward(const OpArgs& args) override { Apply(args, In<T>(args.x[0]), Out<T>(args.y)); }
  void BackwardData(const OpArgs& args) override {
    Apply(args, In<T>(args.dy), Out<T>(args.dx[0]));
  }

 private:
  /// The same map forward and backward: it is linear and diagonal.
  void Apply(const OpArgs& args, const T* from, T* to) const {
    const T kept = T{1} - static_cast<T>(desc_.p);
    const int64_t count = Elements(info_.y.dims);
    for (int64_t i = 0; i < count; ++i) {
      if (!args.training) {
        to[i] = from[i];
      } else if (DropoutKeeps(desc_.key, args.minibatch, static_cast<uint64_t>(i), desc_.p)) {
        to[i] = from[i] / kept;
      } else {
        to[i] = 0;
      }
    }
  }

  DropoutDesc desc_;
};

template <typename T>
class Add : public Op {
 public:
  explicit Add(const OpRequest& request) {
    info_.y = DenseInput(request, 0, kDTypeOf<T>, "add");
    PD_CHECK(request.x.size() >= 2, "add: {} inputs, wanted at least 2", request.x.size());
    for (size_t i = 1; i < request.x.size(); ++i) {
      const Layout& x = DenseInput(request, i, kDTypeOf<T>, "add");
      PD_CHECK(x.dims == info_.y.dims, "add: shapes {} and {}", ToString(info_.y.dims),
               ToString(x.dims));
    }
  }

  void Forward(const OpArgs& args) override {
    T* y = Out<T>(args.y);
    const int64_t count = Elements(info_.y.dims);
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (const void* x : args.x) sum += static_cast<double>(In<T>(x)[i]);
      y[i] = static_cast<T>(sum);
    }
  }

  void BackwardData(const OpArgs& args) override {
    for (void* dx : args.dx) {
      if (dx != nullptr) std::copy_n(In<T>(args.dy), info_.y.stored(), Out<T>(dx));
    }
  }
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeActivation(Activation kind, const OpRequest& request) {
  return std::make_unique<ActivationOp<T>>(kind, request);
}
template <typename T>
std::unique_ptr<Op> MakeGelu(const GeluDesc& desc, const OpRequest& request) {
  return std::make_unique<Gelu<T>>(desc, request);
}
template <typename T>
std::unique_ptr<Op> MakeDropout(const DropoutDesc& desc, const OpRequest& request) {
  return std::make_unique<Dropout<T>>(desc, request);
}
template <typename T>
std::unique_ptr<Op> MakeAdd(const OpRequest& request) {
  return std::make_unique<Add<T>>(request);
}

template std::unique_ptr<Op> MakeActivation<float>(Activation, const OpRequest&);
template std::unique_ptr<Op> MakeActivation<double>(Activation, const OpRequest&);
template std::unique_ptr<Op> MakeGelu<float>(const GeluDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeGelu<double>(const GeluDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeDropout<float>(const DropoutDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeDropout<double>(const DropoutDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeAdd<float>(const OpRequest&);
template std::unique_ptr<Op> MakeAdd<double>(const OpRequest&);

}  // namespace pd::ref
