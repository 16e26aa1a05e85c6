#include "backend/ref/shape_ops.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "backend/ref/ref_op.h"

namespace pd::ref {
namespace {

template <typename T>
class Reshape : public Op {
 public:
  Reshape(const Shape& shape, const OpRequest& request) {
    const DType dtype = request.x.at(0).dtype == DType::kI32 ? DType::kI32 : kDTypeOf<T>;
    const Layout& x = DenseInput(request, 0, dtype, "reshape");
    info_.y = DenseLayout(WithBatch(x.dims[0], shape), dtype);
    PD_CHECK(info_.y.bytes == x.bytes, "reshape: {} to {}", ToString(x.dims), ToString(shape));
  }

  void Forward(const OpArgs& args) override { Copy(args.x[0], args.y); }
  void BackwardData(const OpArgs& args) override { Copy(args.dy, args.dx[0]); }

 private:
  void Copy(const void* from, void* to) const {
    std::copy_n(In<std::byte>(from), info_.y.bytes, Out<std::byte>(to));
  }
};

/// An input is a block of axis·(rest) elements of each row; rows are what lies before the axis.
template <typename T>
class Concat : public Op {
 public:
  Concat(int64_t axis, const OpRequest& request) {
    Shape y = MainInput(request, kDTypeOf<T>, 0, "concat").dims;
    const auto at = static_cast<size_t>(axis);
    y.at(at) = 0;
    for (size_t i = 0; i < request.x.size(); ++i) {
      Shape other = DenseInput(request, i, kDTypeOf<T>, "concat").dims;
      PD_CHECK(other.size() == y.size(), "concat: shapes {} and {}", ToString(y), ToString(other));
      block_.push_back(ElementsFrom(other, at));
      y[at] += other[at];
      other[at] = y[at];
      PD_CHECK(other == y, "concat: shapes {} and {}", ToString(y), ToString(other));
    }
    info_.y = DenseLayout(y, kDTypeOf<T>);
    row_ = ElementsFrom(y, at);
    rows_ = Elements(y) / row_;
  }

  void Forward(const OpArgs& args) override {
    T* y = Out<T>(args.y);
    for (size_t i = 0; i < block_.size(); ++i) {
      const T* x = In<T>(args.x[i]);
      for (int64_t n = 0; n < rows_; ++n) {
        std::copy_n(x + n * block_[i], block_[i], y + n * row_);
      }
      y += block_[i];
    }
  }

  void BackwardData(const OpArgs& args) override {
    const T* dy = In<T>(args.dy);
    for (size_t i = 0; i < block_.size(); ++i) {
      T* dx = Out<T>(args.dx[i]);
      for (int64_t n = 0; dx != nullptr && n < rows_; ++n) {
        std::copy_n(dy + n * row_, block_[i], dx + n * block_[i]);
      }
      dy += block_[i];
    }
  }

 private:
  int64_t rows_, row_;
  std::vector<int64_t> block_;
};

/// Steps in memory from one element to the next of each dimension.
Shape StridesOf(const Shape& dims) {
  Shape strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

/// f(i, place) for each element i of a tensor of `dims` in row-major order; `place` moves by
/// strides[d] with each step along dimension d.
template <typename F>
void ForEachPlace(const Shape& dims, const Shape& strides, F f) {
  const int64_t count = Elements(dims);
  for (int64_t i = 0; i < count; ++i) {
    int64_t place = 0;
    int64_t rest = i;
    for (size_t d = dims.size(); d-- > 0;) {
      place += rest % dims[d] * strides[d];
      rest /= dims[d];
    }
    f(i, place);
  }
}

/// A small tensor and a large one that holds it: element i of the small one lies at `start` +
/// place(i) of the large one.
struct Part {
  Shape small, strides;
  int64_t start = 0;
  int64_t large = 0;  ///< Elements of the large tensor.

  template <typename T>
  void Extract(const T* from, T* to) const {
    ForEachPlace(small, strides, [&](int64_t i, int64_t place) { to[i] = from[start + place]; });
  }
  /// With zeros around.
  template <typename T>
  void Insert(const T* from, T* to) const {
    std::fill_n(to, large, T{0});
    ForEachPlace(small, strides, [&](int64_t i, int64_t place) { to[start + place] = from[i]; });
  }
};

template <typename T>
class Slice : public Op {
 public:
  Slice(const SliceDesc& desc, const OpRequest& request) {
    const Shape& x = MainInput(request, kDTypeOf<T>, 0, "slice").dims;
    const auto at = static_cast<size_t>(desc.axis);
    PD_CHECK(
        at >= 1 && at < x.size() && desc.begin >= 0 && desc.begin < desc.end && desc.end <= x[at],
        "slice: {} to {} of dimension {} of {}", desc.begin, desc.end, desc.axis, ToString(x));
    part_ = {.small = x, .strides = StridesOf(x), .start = 0, .large = Elements(x)};
    part_.small[at] = desc.end - desc.begin;
    part_.start = desc.begin * part_.strides[at];
    info_.y = DenseLayout(part_.small, kDTypeOf<T>);
  }

  void Forward(const OpArgs& args) override { part_.Extract(In<T>(args.x[0]), Out<T>(args.y)); }
  void BackwardData(const OpArgs& args) override {
    part_.Insert(In<T>(args.dy), Out<T>(args.dx[0]));
  }

 private:
  Part part_;
};

template <typename T>
class Pad : public Op {
 public:
  Pad(const PadDesc& desc, const OpRequest& request) {
    const Shape& x = MainInput(request, kDTypeOf<T>, 0, "pad").dims;
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
    part_ = {.small = x, .strides = StridesOf(y), .start = 0, .large = Elements(y)};
    for (size_t d = 0; d < x.size(); ++d) part_.start += desc.before[d] * part_.strides[d];
    info_.y = DenseLayout(std::move(y), kDTypeOf<T>);
  }

  void Forward(const OpArgs& args) override { part_.Insert(In<T>(args.x[0]), Out<T>(args.y)); }
  void BackwardData(const OpArgs& args) override {
    part_.Extract(In<T>(args.dy), Out<T>(args.dx[0]));
  }

 private:
  Part part_;
};

template <typename T>
class Transpose : public Op {
 public:
  Transpose(const TransposeDesc& desc, const OpRequest& request) {
    const Shape& x = MainInput(request, kDTypeOf<T>, 0, "transpose").dims;
    Shape sorted = desc.axes;
    std::sort(sorted.begin(), sorted.end());
    for (size_t d = 0; d < sorted.size(); ++d) {
      PD_CHECK(sorted[d] == static_cast<int64_t>(d), "transpose: axes {}", ToString(desc.axes));
    }
    PD_CHECK(desc.axes.size() == x.size() && desc.axes[0] == 0, "transpose: axes {} of {}",
             ToString(desc.axes), ToString(x));
    const Shape strides = StridesOf(x);
    Shape y;
    for (const int64_t axis : desc.axes) {
      y.push_back(x[static_cast<size_t>(axis)]);
      strides_.push_back(strides[static_cast<size_t>(axis)]);
    }
    info_.y = DenseLayout(std::move(y), kDTypeOf<T>);
  }

  void Forward(const OpArgs& args) override {
    const T* x = In<T>(args.x[0]);
    T* y = Out<T>(args.y);
    ForEachPlace(info_.y.dims, strides_, [&](int64_t i, int64_t place) { y[i] = x[place]; });
  }

  void BackwardData(const OpArgs& args) override {
    const T* dy = In<T>(args.dy);
    T* dx = Out<T>(args.dx[0]);
    ForEachPlace(info_.y.dims, strides_, [&](int64_t i, int64_t place) { dx[place] = dy[i]; });
  }

 private:
  Shape strides_;  ///< Steps in x of each dimension of y.
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeReshape(const Shape& shape, const OpRequest& request) {
  return std::make_unique<Reshape<T>>(shape, request);
}
template <typename T>
std::unique_ptr<Op> MakeConcat(int64_t axis, const OpRequest& request) {
  return std::make_unique<Concat<T>>(axis, request);
}
template <typename T>
std::unique_ptr<Op> MakeSlice(const SliceDesc& desc, const OpRequest& request) {
  return std::make_unique<Slice<T>>(desc, request);
}
template <typename T>
std::unique_ptr<Op> MakePad(const PadDesc& desc, const OpRequest& request) {
  return std::make_unique<Pad<T>>(desc, request);
}
template <typename T>
std::unique_ptr<Op> MakeTranspose(const TransposeDesc& desc, const OpRequest& request) {
  return std::make_unique<Transpose<T>>(desc, request);
}

template std::unique_ptr<Op> MakeReshape<float>(const Shape&, const OpRequest&);
template std::unique_ptr<Op> MakeReshape<double>(const Shape&, const OpRequest&);
template std::unique_ptr<Op> MakeConcat<float>(int64_t, const OpRequest&);
template std::unique_ptr<Op> MakeConcat<double>(int64_t, const OpRequest&);
template std::unique_ptr<Op> MakeSlice<float>(const SliceDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeSlice<double>(const SliceDesc&, const OpRequest&);
template std::unique_ptr<Op> MakePad<float>(const PadDesc&, const OpRequest&);
template std::unique_ptr<Op> MakePad<double>(const PadDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeTranspose<float>(const TransposeDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeTranspose<double>(const TransposeDesc&, const OpRequest&);

}  // namespace pd::ref
