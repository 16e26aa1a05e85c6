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
class Flatten : public Op {
 public:
  explicit Flatten(const OpRequest& request) {
    const Layout& x = MainInput(request, kDTypeOf<T>, 0, "flatten");
    info_.y = DenseLayout({x.dims[0], ElementsFrom(x.dims, 1)}, kDTypeOf<T>);
  }

  void Forward(const OpArgs& args) override { Copy(args.x[0], args.y); }
  void BackwardData(const OpArgs& args) override { Copy(args.dy, args.dx[0]); }

 private:
  void Copy(const void* from, void* to) const {
    std::copy_n(In<T>(from), info_.y.stored(), Out<T>(to));
  }
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

/// An input is a block of channels·(rest) elements of each sample.
template <typename T>
class Concat : public Op {
 public:
  explicit Concat(const OpRequest& request) {
    Shape y = MainInput(request, kDTypeOf<T>, 0, "concat").dims;
    samples_ = y[0];
    y[1] = 0;
    for (size_t i = 0; i < request.x.size(); ++i) {
      Shape other = DenseInput(request, i, kDTypeOf<T>, "concat").dims;
      PD_CHECK(other.size() == y.size(), "concat: shapes {} and {}", ToString(y), ToString(other));
      block_.push_back(ElementsFrom(other, 1));
      y[1] += other[1];
      other[1] = y[1];
      PD_CHECK(other == y, "concat: shapes {} and {}", ToString(y), ToString(other));
    }
    info_.y = DenseLayout(y, kDTypeOf<T>);
    row_ = ElementsFrom(y, 1);
  }

  void Forward(const OpArgs& args) override {
    T* y = Out<T>(args.y);
    for (size_t i = 0; i < block_.size(); ++i) {
      const T* x = In<T>(args.x[i]);
      for (int64_t n = 0; n < samples_; ++n) {
        std::copy_n(x + n * block_[i], block_[i], y + n * row_);
      }
      y += block_[i];
    }
  }

  void BackwardData(const OpArgs& args) override {
    const T* dy = In<T>(args.dy);
    for (size_t i = 0; i < block_.size(); ++i) {
      T* dx = Out<T>(args.dx[i]);
      for (int64_t n = 0; dx != nullptr && n < samples_; ++n) {
        std::copy_n(dy + n * row_, block_[i], dx + n * block_[i]);
      }
      dy += block_[i];
    }
  }

 private:
  int64_t samples_, row_;
  std::vector<int64_t> block_;
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeActivation(Activation kind, const OpRequest& request) {
  return std::make_unique<ActivationOp<T>>(kind, request);
}
template <typename T>
std::unique_ptr<Op> MakeDropout(const DropoutDesc& desc, const OpRequest& request) {
  return std::make_unique<Dropout<T>>(desc, request);
}
template <typename T>
std::unique_ptr<Op> MakeFlatten(const OpRequest& request) {
  return std::make_unique<Flatten<T>>(request);
}
template <typename T>
std::unique_ptr<Op> MakeAdd(const OpRequest& request) {
  return std::make_unique<Add<T>>(request);
}
template <typename T>
std::unique_ptr<Op> MakeConcat(const OpRequest& request) {
  return std::make_unique<Concat<T>>(request);
}

template std::unique_ptr<Op> MakeActivation<float>(Activation, const OpRequest&);
template std::unique_ptr<Op> MakeActivation<double>(Activation, const OpRequest&);
template std::unique_ptr<Op> MakeDropout<float>(const DropoutDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeDropout<double>(const DropoutDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeFlatten<float>(const OpRequest&);
template std::unique_ptr<Op> MakeFlatten<double>(const OpRequest&);
template std::unique_ptr<Op> MakeAdd<float>(const OpRequest&);
template std::unique_ptr<Op> MakeAdd<double>(const OpRequest&);
template std::unique_ptr<Op> MakeConcat<float>(const OpRequest&);
template std::unique_ptr<Op> MakeConcat<double>(const OpRequest&);

}  // namespace pd::ref
