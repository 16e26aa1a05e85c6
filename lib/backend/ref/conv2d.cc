#include "backend/ref/conv2d.h"

#include <algorithm>

#include "backend/ref/ref_op.h"

// The innermost loop runs along a row of the image, so that it needs no bounds check (Columns says
// which outputs meet the image) and the compiler can vectorise it; the sums of one row are kept in
// double in the workspace. Forward and backward data walk the same (row, column) pairs.

namespace pd::ref {
namespace {

/// The pairs of output position `out` and input position out·stride + offset for one kernel tap.
struct Columns {
  int64_t begin, end;  ///< Outputs whose input position lies inside the image.
};

Columns ValidColumns(int64_t outputs, int64_t inputs, int64_t stride, int64_t offset) {
  const int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const int64_t last = inputs - 1 - offset;
  const int64_t end = last < 0 ? 0 : std::min(outputs, last / stride + 1);
  return {.begin = begin, .end = std::max(begin, end)};
}

template <typename T>
class Conv2d : public Op {
 public:
  Conv2d(const Conv2dDesc& desc, const OpRequest& request) : desc_(desc) {
    const Layout& x = MainInput(request, kDTypeOf<T>, 4, "conv2d");
    n_ = x.dims[0], c_ = x.dims[1], h_ = x.dims[2], w_ = x.dims[3];
    k_ = desc.out_channels;
    PD_CHECK(k_ > 0 && desc.groups > 0 && k_ % desc.groups == 0 && c_ % desc.groups == 0,
             "conv2d: {} to {} channels in {} groups", c_, k_, desc.groups);
    group_c_ = c_ / desc.groups, group_k_ = k_ / desc.groups;
    p_ = OutputExtent(h_, 0), q_ = OutputExtent(w_, 1);
    info_.y = DenseLayout({n_, k_, p_, q_}, kDTypeOf<T>);
    info_.params.push_back(
        DenseLayout({k_, group_c_, desc.kernel[0], desc.kernel[1]}, kDTypeOf<T>));
    if (desc.bias) info_.params.push_back(DenseLayout({k_}, kDTypeOf<T>));
    info_.workspace_bytes = static_cast<size_t>(std::max(q_, w_)) * sizeof(double);
    info_.backward_reads_x = true;
    CheckParams(request, info_, "conv2d");
  }

  void Forward(const OpArgs& args) override {
    const T* x = In<T>(args.x[0]);
    const T* bias = desc_.bias ? In<T>(args.params[1]) : nullptr;
    T* y = Out<T>(args.y);
    double* sum = Out<double>(args.workspace);
    for (int64_t n = 0; n < n_; ++n) {
      for (int64_t k = 0; k < k_; ++k) {
        for (int64_t p = 0; p < p_; ++p, y += q_) {
          std::fill(sum, sum + q_, bias != nullptr ? static_cast<double>(bias[k]) : 0.0);
          AddRow(x, In<T>(args.params[0]), n, k, p, sum);
          for (int64_t q = 0; q < q_; ++q) y[q] = static_cast<T>(sum[q]);
        }
      }
    }
  }

  void BackwardData(const OpArgs& args) override {
    const T* dy = In<T>(args.dy);
    T* dx = Out<T>(args.dx[0]);
    double* sum = Out<double>(args.workspace);
    for (int64_t n = 0; n < n_; ++n) {
      for (int64_t c = 0; c < c_; ++c) {
        for (int64_t h = 0; h < h_; ++h, dx += w_) {
          std::fill(sum, sum + w_, 0.0);
          AddGradientRow(dy, In<T>(args.params[0]), n, c, h, sum);
          for (int64_t w = 0; w < w_; ++w) dx[w] = static_cast<T>(sum[w]);
        }
      }
    }
  }

  void BackwardWeights(const OpArgs& args) override {
    const T* x = In<T>(args.x[0]);
    const T* dy = In<T>(args.dy);
    T* dweight = Out<T>(args.dparams[0]);
    for (int64_t k = 0; k < k_; ++k) {
      for (int64_t c = 0; c < group_c_; ++c) {
        for (int64_t r = 0; r < desc_.kernel[0]; ++r) {
          for (int64_t s = 0; s < desc_.kernel[1]; ++s) {
            *dweight++ =
                static_cast<T>(WeightGradient(x, dy, k, c, r, s, Out<double>(args.workspace)));
          }
        }
      }
    }
    if (desc_.bias) BiasGradient(dy, Out<T>(args.dparams[1]));
  }

 private:
  int64_t OutputExtent(int64_t extent, int i) const {
    const int64_t kernel = (desc_.kernel[i] - 1) * desc_.dilation[i] + 1;
    PD_CHECK(desc_.kernel[i] > 0 && desc_.stride[i] > 0 && desc_.dilation[i] > 0 &&
                 desc_.padding[i] >= 0 && extent + 2 * desc_.padding[i] >= kernel,
             "conv2d: kernel {}, stride {}, padding {}, dilation {} on extent {}", desc_.kernel[i],
             desc_.stride[i], desc_.padding[i], desc_.dilation[i], extent);
    return (extent + 2 * desc_.padding[i] - kernel) / desc_.stride[i] + 1;
  }

  /// Input position of tap `tap` at output position 0.
  int64_t Offset(int64_t tap, int i) const { return tap * desc_.dilation[i] - desc_.padding[i]; }

  Columns RowColumns(int64_t s) const {
    return ValidColumns(q_, w_, desc_.stride[1], Offset(s, 1));
  }

  const T* Weights(const T* weight, int64_t k, int64_t c, int64_t r) const {
    return weight + ((k * group_c_ + c) * desc_.kernel[0] + r) * desc_.kernel[1];
  }

  /// Adds to the output row (n, k, p) its products with the kernel.
  void AddRow(const T* x, const T* weight, int64_t n, int64_t k, int64_t p, double* sum) const {
    const int64_t stride = desc_.stride[1];
    for (int64_t c = 0; c < group_c_; ++c) {
      const T* plane = x + (n * c_ + k / group_k_ * group_c_ + c) * h_ * w_;
      for (int64_t r = 0; r < desc_.kernel[0]; ++r) {
        const int64_t h = p * desc_.stride[0] + Offset(r, 0);
        if (h < 0 || h >= h_) continue;
        for (int64_t s = 0; s < desc_.kernel[1]; ++s) {
          const double tap = Weights(weight, k, c, r)[s];
          const T* row = plane + h * w_;
          const int64_t offset = Offset(s, 1);
          const auto [begin, end] = RowColumns(s);
          for (int64_t q = begin; q < end; ++q) sum[q] += tap * row[q * stride + offset];
        }
      }
    }
  }

  /// Adds to the row (n, c, h) of dx what the outputs that read it send back.
  void AddGradientRow(const T* dy, const T* weight, int64_t n, int64_t c, int64_t h,
                      double* sum) const {
    const int64_t stride = desc_.stride[1];
    const int64_t group = c / group_c_;
    for (int64_t k = group * group_k_; k < (group + 1) * group_k_; ++k) {
      for (int64_t r = 0; r < desc_.kernel[0]; ++r) {
        const int64_t steps = h - Offset(r, 0);
        const int64_t p = steps / desc_.stride[0];
        if (steps < 0 || steps % desc_.stride[0] != 0 || p >= p_) continue;
        const T* row = dy + ((n * k_ + k) * p_ + p) * q_;
        for (int64_t s = 0; s < desc_.kernel[1]; ++s) {
          const double tap = Weights(weight, k, c % group_c_, r)[s];
          const int64_t offset = Offset(s, 1);
          const auto [begin, end] = RowColumns(s);
          for (int64_t q = begin; q < end; ++q) sum[q * stride + offset] += tap * row[q];
        }
      }
    }
  }

  /// One element of dweight; `lane` [Q] holds a partial sum for each output column.
  double WeightGradient(const T* x, const T* dy, int64_t k, int64_t c, int64_t r, int64_t s,
                        double* lane) const {
    const int64_t stride = desc_.stride[1];
    const int64_t offset = Offset(s, 1);
    const auto [begin, end] = RowColumns(s);
    std::fill(lane, lane + q_, 0.0);
    for (int64_t n = 0; n < n_; ++n) {
      const T* plane = x + (n * c_ + k / group_k_ * group_c_ + c) * h_ * w_;
      for (int64_t p = 0; p < p_; ++p) {
        const int64_t h = p * desc_.stride[0] + Offset(r, 0);
        if (h < 0 || h >= h_) continue;
        const T* row = plane + h * w_;
        const T* gradient = dy + ((n * k_ + k) * p_ + p) * q_;
        for (int64_t q = begin; q < end; ++q) {
          lane[q] +=
              static_cast<double>(gradient[q]) * static_cast<double>(row[q * stride + offset]);
        }
      }
    }
    double sum = 0;
    for (int64_t q = 0; q < q_; ++q) sum += lane[q];
    return sum;
  }

  void BiasGradient(const T* dy, T* dbias) const {
    for (int64_t k = 0; k < k_; ++k) {
      double sum = 0;
      for (int64_t n = 0; n < n_; ++n) {
        const T* plane = dy + (n * k_ + k) * p_ * q_;
        for (int64_t i = 0; i < p_ * q_; ++i) sum += static_cast<double>(plane[i]);
      }
      dbias[k] = static_cast<T>(sum);
    }
  }

  Conv2dDesc desc_;
  int64_t n_, c_, h_, w_, k_, p_, q_;
  int64_t group_c_, group_k_;  ///< Input and output channels of one group.
};

}  // namespace

template <typename T>
std::unique_ptr<Op> MakeConv2d(const Conv2dDesc& desc, const OpRequest& request) {
  return std::make_unique<Conv2d<T>>(desc, request);
}

template std::unique_ptr<Op> MakeConv2d<float>(const Conv2dDesc&, const OpRequest&);
template std::unique_ptr<Op> MakeConv2d<double>(const Conv2dDesc&, const OpRequest&);

}  // namespace pd::ref
