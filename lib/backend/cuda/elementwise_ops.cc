#include <vector>

#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

// Operations that work on each element alone or only move elements, on own kernels and copies.
// Activations too: cudnnActivationBackward wants x beside y, so that a stage would have to keep the
// inputs of its activations as well, which nothing else reads.

namespace pd::cuda {
namespace {

class ActivationOp : public CudaOp {
 public:
  ActivationOp(const Context& context, Activation kind, const OpRequest& request)
      : CudaOp(context), kind_(KindOf(kind)) {
    info_.y = DenseInput(request, 0, "activation");
    info_.backward_reads_y = true;
  }

  void Forward(const OpArgs& args) override {
    PD_CUDA(LaunchActivation(kind_, Floats(args.x[0]), Floats(args.y), info_.y.stored(), stream()));
  }
  void BackwardData(const OpArgs& args) override {
    PD_CUDA(LaunchActivationBackward(kind_, Floats(args.y), Floats(args.dy), Floats(args.dx[0]),
                                     info_.y.stored(), stream()));
  }

 private:
  static ActivationKind KindOf(Activation kind) {
    switch (kind) {
      case Activation::kRelu:
        return ActivationKind::kRelu;
      case Activation::kTanh:
        return ActivationKind::kTanh;
      case Activation::kSigmoid:
        return ActivationKind::kSigmoid;
    }
    Throw(ErrorCode::kInternal, "activation {}", static_cast<int>(kind));
  }

  ActivationKind kind_;
};

class Gelu : public CudaOp {
 public:
  Gelu(const Context& context, const GeluDesc& desc, const OpRequest& request)
      : CudaOp(context), tanh_(desc.tanh) {
    info_.y = DenseInput(request, 0, "gelu");
    info_.backward_reads_x = true;
  }

  void Forward(const OpArgs& args) override {
    PD_CUDA(LaunchGelu(tanh_, Floats(args.x[0]), Floats(args.y), info_.y.stored(), stream()));
  }
  void BackwardData(const OpArgs& args) override {
    PD_CUDA(LaunchGeluBackward(tanh_, Floats(args.x[0]), Floats(args.dy), Floats(args.dx[0]),
                               info_.y.stored(), stream()));
  }

 private:
  bool tanh_;
};

/// Backward computes the mask again from (key, minibatch): nothing is saved.
class Dropout : public CudaOp {
 public:
  Dropout(const Context& context, const DropoutDesc& desc, const OpRequest& request)
      : CudaOp(context), desc_(desc) {
    PD_CHECK(desc.p >= 0 && desc.p < 1, "dropout: p is {}", desc.p);
    info_.y = DenseInput(request, 0, "dropout");
  }

  void Forward(const OpArgs& args) override { Apply(args, args.x[0], args.y); }
  void BackwardData(const OpArgs& args) override { Apply(args, args.dy, args.dx[0]); }

 private:
  /// The same map forward and backward: it is linear and diagonal.
  void Apply(const OpArgs& args, const void* from, void* to) const {
    if (!args.training) {
      CopyAsync(to, from, info_.y.bytes);
      return;
    }
    PD_CUDA(LaunchDropout(Floats(from), Floats(to), info_.y.stored(), desc_.key, args.minibatch,
                          desc_.p, stream()));
  }

  DropoutDesc desc_;
};

class Reshape : public CudaOp {
 public:
  Reshape(const Context& context, const Shape& shape, const OpRequest& request) : CudaOp(context) {
    const DType dtype = request.x.at(0).dtype == DType::kI32 ? DType::kI32 : DType::kF32;
    const Layout& x = DenseInput(request, 0, "reshape", dtype);
    info_.y = DenseLayout(WithBatch(x.dims[0], shape), dtype);
    PD_CHECK(info_.y.bytes == x.bytes, "reshape: {} to {}", ToString(x.dims), ToString(shape));
  }

  void Forward(const OpArgs& args) override { CopyAsync(args.y, args.x[0], info_.y.bytes); }
  void BackwardData(const OpArgs& args) override { CopyAsync(args.dx[0], args.dy, info_.y.bytes); }
};

class Add : public CudaOp {
 public:
  Add(const Context& context, const OpRequest& request) : CudaOp(context) {
    info_.y = DenseInput(request, 0, "add");
    PD_CHECK(request.x.size() >= 2, "add: {} inputs, wanted at least 2", request.x.size());
    for (size_t i = 1; i < request.x.size(); ++i) {
      const Layout& x = DenseInput(request, i, "add");
      PD_CHECK(x.dims == info_.y.dims, "add: shapes {} and {}", ToString(info_.y.dims),
               ToString(x.dims));
    }
  }

  void Forward(const OpArgs& args) override {
    const size_t count = info_.y.stored();
    PD_CUDA(LaunchSum(Floats(args.y), Floats(args.x[0]), Floats(args.x[1]), count, stream()));
    for (const void* x : args.x.subspan(2)) {
      PD_CUDA(LaunchAccumulate(Floats(args.y), Floats(x), count, stream()));
    }
  }

  void BackwardData(const OpArgs& args) override {
    for (void* dx : args.dx) {
      if (dx != nullptr) CopyAsync(dx, args.dy, info_.y.bytes);
    }
  }
};

/// An input is a block of axis·(rest) elements of each row; rows are what lies before the axis.
class Concat : public CudaOp {
 public:
  Concat(const Context& context, int64_t axis, const OpRequest& request) : CudaOp(context) {
    Shape y = DenseInput(request, 0, "concat").dims;
    const auto at = static_cast<size_t>(axis);
    y.at(at) = 0;
    for (size_t i = 0; i < request.x.size(); ++i) {
      Shape other = DenseInput(request, i, "concat").dims;
      PD_CHECK(other.size() == y.size(), "concat: shapes {} and {}", ToString(y), ToString(other));
      block_.push_back(ElementsFrom(other, at));
      y[at] += other[at];
      other[at] = y[at];
      PD_CHECK(other == y, "concat: shapes {} and {}", ToString(y), ToString(other));
    }
    info_.y = DenseLayout(y, DType::kF32);
    row_ = ElementsFrom(y, at);
    rows_ = Elements(y) / row_;
  }

  void Forward(const OpArgs& args) override {
    float* y = Floats(args.y);
    for (size_t i = 0; i < block_.size(); ++i) {
      PD_CUDA(LaunchCopyRows(y, row_, Floats(args.x[i]), block_[i], block_[i], rows_, stream()));
      y += block_[i];
    }
  }

  void BackwardData(const OpArgs& args) override {
    const float* dy = Floats(args.dy);
    for (size_t i = 0; i < block_.size(); ++i) {
      if (args.dx[i] != nullptr) {
        PD_CUDA(
            LaunchCopyRows(Floats(args.dx[i]), block_[i], dy, row_, block_[i], rows_, stream()));
      }
      dy += block_[i];
    }
  }

 private:
  int64_t rows_ = 0, row_ = 0;
  std::vector<int64_t> block_;
};

}  // namespace

std::unique_ptr<Op> MakeActivation(const Context& context, Activation kind,
                                   const OpRequest& request) {
  return std::make_unique<ActivationOp>(context, kind, request);
}
std::unique_ptr<Op> MakeGelu(const Context& context, const GeluDesc& desc,
                             const OpRequest& request) {
  return std::make_unique<Gelu>(context, desc, request);
}
std::unique_ptr<Op> MakeDropout(const Context& context, const DropoutDesc& desc,
                                const OpRequest& request) {
  return std::make_unique<Dropout>(context, desc, request);
}
std::unique_ptr<Op> MakeReshape(const Context& context, const Shape& shape,
                                const OpRequest& request) {
  return std::make_unique<Reshape>(context, shape, request);
}
std::unique_ptr<Op> MakeAdd(const Context& context, const OpRequest& request) {
  return std::make_unique<Add>(context, request);
}
std::unique_ptr<Op> MakeConcat(const Context& context, int64_t axis, const OpRequest& request) {
  return std::make_unique<Concat>(context, axis, request);
}

}  // namespace pd::cuda
