#include <algorithm>
#include <numeric>
#include <utility>

#include "backend/cuda/cuda_op.h"
#include "backend/cuda/ops.h"
#include "base/error.h"

// Slice, pad and transpose: one strided copy, forward and back.

namespace pd::cuda {
namespace {

/// Steps in memory from one element to the next of each dimension.
Shape StridesOf(const Shape& dims) {
  Shape strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

StridedShape Strided(const Shape& dims, const Shape& from, const Shape& to) {
  if (dims.size() > static_cast<size_t>(StridedShape::kMaxRank)) {
    Throw(ErrorCode::kInvalidInput, "a copy of shape {}: at most {} dimensions", ToString(dims),
          StridedShape::kMaxRank);
  }
  StridedShape shape;
  shape.rank = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), shape.dims);
  std::copy(from.begin(), from.end(), shape.from);
  std::copy(to.begin(), to.end(), shape.to);
  return shape;
}

/// A small tensor and a large one that holds it.
class PartOp : public CudaOp {
 protected:
  explicit PartOp(const Context& context) : CudaOp(context) {}

  /// `place`: where in the large one its first element lies.
  void SetPart(const Shape& small, const Shape& large, const Shape& place) {
    const Shape strides = StridesOf(large), own = StridesOf(small);
    extract_ = Strided(small, strides, own);
    insert_ = Strided(small, own, strides);
    start_ = std::inner_product(place.begin(), place.end(), strides.begin(), int64_t{0});
    large_bytes_ = DenseLayout(large, DType::kF32).bytes;
  }

  void Extract(const void* large, void* small) const {
    PD_CUDA(LaunchStridedCopy(Floats(small), Floats(large) + start_, extract_, stream()));
  }
  /// With zeros around.
  void Insert(const void* small, void* large) const {
    PD_CUDA(cudaMemsetAsync(large, 0, large_bytes_, stream()));
    PD_CUDA(LaunchStridedCopy(Floats(large) + start_, Floats(small), insert_, stream()));
  }

 private:
  StridedShape extract_, insert_;
  int64_t start_ = 0;
  size_t large_bytes_ = 0;
};

class Slice : public PartOp {
 public:
  Slice(const Context& context, const SliceDesc& desc, const OpRequest& request) : PartOp(context) {
    const Shape& x = DenseInput(request, 0, "slice").dims;
    const auto at = static_cast<size_t>(desc.axis);
    PD_CHECK(
        at >= 1 && at < x.size() && desc.begin >= 0 && desc.begin < desc.end && desc.end <= x[at],
        "slice: {} to {} of dimension {} of {}", desc.begin, desc.end, desc.axis, ToString(x));
    Shape y = x;
    y[at] = desc.end - desc.begin;
    Shape place(x.size(), 0);
    place[at] = desc.begin;
    SetPart(y, x, place);
    info_.y = DenseLayout(std::move(y), DType::kF32);
  }

  void Forward(const OpArgs& args) override { Extract(args.x[0], args.y); }
  void BackwardData(const OpArgs& args) override { Insert(args.dy, args.dx[0]); }
};

class Pad : public PartOp {
 public:
  Pad(const Context& context, const PadDesc& desc, const OpRequest& request) : PartOp(context) {
    const Shape& x = DenseInput(request, 0, "pad").dims;
    PD_CHECK(desc.before.size() == x.size() && desc.after.size() == x.size() &&
                 desc.before[0] == 0 && desc.after[0] == 0,
             "pad: {} before and {} after {}", ToString(desc.before), ToString(desc.after),
             ToString(x));
    Shape y = x;
    for (size_t d = 0; d < x.size(); ++d) {
      PD_CHECK(desc.before[d] >= 0 && desc.after[d] >= 0, "pad: {} and {} along dimension {}",
               desc.before[d], desc.after[d], d);
      y[d] += desc.before[d] + desc.after[d];
    }
    SetPart(x, y, desc.before);
    info_.y = DenseLayout(std::move(y), DType::kF32);
  }

  void Forward(const OpArgs& args) override { Insert(args.x[0], args.y); }
  void BackwardData(const OpArgs& args) override { Extract(args.dy, args.dx[0]); }
};

class Transpose : public CudaOp {
 public:
  Transpose(const Context& context, const TransposeDesc& desc, const OpRequest& request)
      : CudaOp(context) {
    const Shape& x = DenseInput(request, 0, "transpose").dims;
    Shape identity(x.size());
    std::iota(identity.begin(), identity.end(), 0);
    PD_CHECK(
        std::is_permutation(desc.axes.begin(), desc.axes.end(), identity.begin(), identity.end()) &&
            desc.axes[0] == 0,
        "transpose: axes {} of {}", ToString(desc.axes), ToString(x));
    const Shape strides = StridesOf(x);
    Shape y, from;
    for (const int64_t axis : desc.axes) {
      y.push_back(x[static_cast<size_t>(axis)]);
      from.push_back(strides[static_cast<size_t>(axis)]);
    }
    forward_ = Strided(y, from, StridesOf(y));
    backward_ = Strided(y, StridesOf(y), from);
    info_.y = DenseLayout(std::move(y), DType::kF32);
  }

  void Forward(const OpArgs& args) override {
    PD_CUDA(LaunchStridedCopy(Floats(args.y), Floats(args.x[0]), forward_, stream()));
  }
  void BackwardData(const OpArgs& args) override {
    PD_CUDA(LaunchStridedCopy(Floats(args.dx[0]), Floats(args.dy), backward_, stream()));
  }

 private:
  StridedShape forward_, backward_;
};

}  // namespace

std::unique_ptr<Op> MakeSlice(const Context& context, const SliceDesc& desc,
                              const OpRequest& request) {
  return std::make_unique<Slice>(context, desc, request);
}
std::unique_ptr<Op> MakePad(const Context& context, const PadDesc& desc, const OpRequest& request) {
  return std::make_unique<Pad>(context, desc, request);
}
std::unique_ptr<Op> MakeTranspose(const Context& context, const TransposeDesc& desc,
                                  const OpRequest& request) {
  return std::make_unique<Transpose>(context, desc, request);
}

}  // namespace pd::cuda
