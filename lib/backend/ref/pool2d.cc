#include "backend/ref/pool2d.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/ref/ref_op.h"

namespace pd::ref {
namespace {

/// The part of the image [begin, end) that one output reads along one dimension.
struct Window {
  int64_t begin, end;
  int64_t padded;  ///< Extent of the window inside the padded image.
};

template <typename T>
class Pool2d : public Op {
 public:
  Pool2d(const Pool2dDesc& desc, const OpRequest& request) : desc_(desc) {
    const Layout& x = MainInput(request, kDTypeOf<T>, 4, "pool2d");
    planes_ = x.dims[0] * x.dims[1];
    image_ = {x.dims[2], x.dims[3]};
    for (int i = 0; i < 2; ++i) {
      PD_CHECK(desc.kernel[i] > 0 && desc.stride[i] > 0 && desc.padding[i] >= 0 && desc.out[i] > 0,
               "pool2d: kernel {}, stride {}, padding {}, output {}", desc.kernel[i],
               desc.stride[i], desc.padding[i], desc.out[i]);
      const Window first = WindowOf(0, i);
      const Window last = WindowOf(desc.out[i] - 1, i);
      PD_CHECK(first.begin < first.end && last.begin < last.end,
               "pool2d: a window of {} with stride {} and padding {} misses the image of extent {}",
               desc.kernel[i], desc.stride[i], desc.padding[i], image_[i]);
    }
    PD_CHECK(image_[0] * image_[1] <= std::numeric_limits<int32_t>::max(),
             "pool2d: image of {} by {}", image_[0], image_[1]);
    info_.y = DenseLayout({x.dims[0], x.dims[1], desc.out[0], desc.out[1]}, kDTypeOf<T>);
    if (desc.kind == Pool2dDesc::Kind::kMax) {
      info_.saved_bytes = static_cast<size_t>(Elements(info_.y.dims)) * sizeof(int32_t);
    }
    info_.workspace_bytes = static_cast<size_t>(image_[0] * image_[1]) * sizeof(double);
  }

  void Forward(const OpArgs& args) override {
    const T* plane = In<T>(args.x[0]);
    T* y = Out<T>(args.y);
    int32_t* index = Out<int32_t>(args.saved);
    for (int64_t i = 0; i < planes_; ++i, plane += image_[0] * image_[1]) {
      for (int64_t p = 0; p < desc_.out[0]; ++p) {
        for (int64_t q = 0; q < desc_.out[1]; ++q) {
          if (desc_.kind == Pool2dDesc::Kind::kMax) {
            *index = MaximumIn(plane, WindowOf(p, 0), WindowOf(q, 1));
            *y++ = plane[*index++];
          } else {
            *y++ = AverageIn(plane, WindowOf(p, 0), WindowOf(q, 1));
          }
        }
      }
    }
  }

  void BackwardData(const OpArgs& args) override {
    const T* dy = In<T>(args.dy);
    T* dx = Out<T>(args.dx[0]);
    const int32_t* index = In<int32_t>(args.saved);
    double* sum = Out<double>(args.workspace);
    const int64_t pixels = image_[0] * image_[1];
    const int64_t outputs = desc_.out[0] * desc_.out[1];
    for (int64_t i = 0; i < planes_; ++i, dy += outputs, dx += pixels) {
      std::fill(sum, sum + pixels, 0.0);
      if (desc_.kind == Pool2dDesc::Kind::kMax) {
        for (int64_t j = 0; j < outputs; ++j) sum[*index++] += static_cast<double>(dy[j]);
      } else {
        SpreadAverages(dy, sum);
      }
      for (int64_t j = 0; j < pixels; ++j) dx[j] = static_cast<T>(sum[j]);
    }
  }

 private:
  Window WindowOf(int64_t out, int i) const {
    const int64_t begin = out * desc_.stride[i] - desc_.padding[i];
    const int64_t end = std::min(begin + desc_.kernel[i], image_[i] + desc_.padding[i]);
    return {.begin = std::max<int64_t>(begin, 0),
            .end = std::min(end, image_[i]),
            .padded = end - begin};
  }

  int32_t MaximumIn(const T* plane, Window rows, Window columns) const {
    int64_t best = rows.begin * image_[1] + columns.begin;
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        const T value = plane[h * image_[1] + w];
        if (value > plane[best] || std::isnan(value)) best = h * image_[1] + w;
      }
    }
    return static_cast<int32_t>(best);
  }

  double Divisor(Window rows, Window columns) const {
    const int64_t elements = desc_.count_include_pad
                                 ? rows.padded * columns.padded
                                 : (rows.end - rows.begin) * (columns.end - columns.begin);
    return static_cast<double>(elements);
  }

  T AverageIn(const T* plane, Window rows, Window columns) const {
    double sum = 0;
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        sum += static_cast<double>(plane[h * image_[1] + w]);
      }
    }
    return static_cast<T>(sum / Divisor(rows, columns));
  }

  void SpreadAverages(const T* dy, double* sum) const {
    for (int64_t p = 0; p < desc_.out[0]; ++p) {
      const Window rows = WindowOf(p, 0);
      for (int64_t q = 0; q < desc_.out[1]; ++q) {
        const Window columns = WindowOf(q, 1);
        const double share = static_cast<double>(*dy++) / Divisor(rows, columns);
        for (int64_t h = rows.begin; h < rows.end; ++h) {
          for (int64_t w = columns.begin; w < columns.end; ++w) sum[h * image_[1] + w] += share;
        }
      }
    }
  }

  Pool2dDesc desc_;
  int64_t planes_;
  std::array<int64_t, 2> image_;
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakePool2d(const Pool2dDesc& desc, const OpRequest& request) {
  return std::make_unique<Pool2d<T>>(desc, request);
}

template std::unique_ptr<Op> MakePool2d<float>(const Pool2dDesc&, const OpRequest&);
template std::unique_ptr<Op> MakePool2d<double>(const Pool2dDesc&, const OpRequest&);

}  // namespace pd::ref
