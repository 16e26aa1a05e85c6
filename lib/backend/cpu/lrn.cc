#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/vectorize.h"

// By hand on dense images, since oneDNN's kernels for other windows than 5 and for the backward
// pass on dense images are plain loops; blocked ones are reordered by way of the workspace. Each
// loop runs along the pixels of one channel.

namespace pd::cpu {
namespace {

constexpr int64_t kChunk = 64;  ///< Pixels at a time, so that the sums stay in the nearest cache.

struct Shape2 {
  int64_t channels, pixels;
};

/// base^-beta; the usual exponents without a logarithm.
[[gnu::always_inline]] inline float Power(float base, float beta) {
  if (beta == 0.75F) return 1 / (std::sqrt(base) * std::sqrt(std::sqrt(base)));
  if (beta == 0.5F) return 1 / std::sqrt(base);
  return std::pow(base, -beta);
}

/// base[i] = k + alpha/size · Σ x² over the channels around c, for `count` pixels from `start`.
[[gnu::always_inline]] inline void Bases(const float* x, const Shape2& shape, const LrnDesc& desc,
                                         int64_t c, int64_t start, int64_t count, float* base) {
  const int64_t begin = std::max<int64_t>(0, c - desc.size / 2);
  const int64_t end = std::min(shape.channels, c + (desc.size - 1) / 2 + 1);
  const auto scale = static_cast<float>(desc.alpha / static_cast<double>(desc.size));
  const auto k = static_cast<float>(desc.k);
  std::fill_n(base, kChunk, 0.0F);
  for (int64_t j = begin; j < end; ++j) {
    const float* row = x + j * shape.pixels + start;
    for (int64_t i = 0; i < count; ++i) base[i] += row[i] * row[i];
  }
  for (int64_t i = 0; i < count; ++i) base[i] = k + scale * base[i];
}

PD_CLONES void ForwardSample(const float* x, const Shape2& shape, const LrnDesc& desc, float* y) {
  const auto beta = static_cast<float>(desc.beta);
  float base[kChunk];
  for (int64_t c = 0; c < shape.channels; ++c) {
    for (int64_t start = 0; start < shape.pixels; start += kChunk) {
      const int64_t count = std::min(kChunk, shape.pixels - start);
      Bases(x, shape, desc, c, start, count, base);
      const int64_t at = c * shape.pixels + start;
      for (int64_t i = 0; i < count; ++i) y[at + i] = x[at + i] * Power(base[i], beta);
    }
  }
}

/// dx_c = dy_c·power_c - 2·alpha·beta/size · x_c · Σ share_j, share_j = dy_j·x_j·power_j/base_j
/// over the channels j whose windows hold c. `share`: room for a sample.
PD_CLONES void BackwardSample(const float* x, const float* dy, const Shape2& shape,
                              const LrnDesc& desc, float* share, float* dx) {
  const auto beta = static_cast<float>(desc.beta);
  float base[kChunk];
  for (int64_t c = 0; c < shape.channels; ++c) {
    for (int64_t start = 0; start < shape.pixels; start += kChunk) {
      const int64_t count = std::min(kChunk, shape.pixels - start);
      Bases(x, shape, desc, c, start, count, base);
      const int64_t at = c * shape.pixels + start;
      PD_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) {
        const float direct = dy[at + i] * Power(base[i], beta);
        dx[at + i] = direct;
        share[at + i] = direct * x[at + i] / base[i];
      }
    }
  }
  const auto factor =
      static_cast<float>(2 * desc.alpha * desc.beta / static_cast<double>(desc.size));
  for (int64_t c = 0; c < shape.channels; ++c) {
    const int64_t begin = std::max<int64_t>(0, c - (desc.size - 1) / 2);
    const int64_t end = std::min(shape.channels, c + desc.size / 2 + 1);
    for (int64_t start = 0; start < shape.pixels; start += kChunk) {
      const int64_t count = std::min(kChunk, shape.pixels - start);
      float sum[kChunk] = {};
      for (int64_t j = begin; j < end; ++j) {
        const float* row = share + j * shape.pixels + start;
        for (int64_t i = 0; i < count; ++i) sum[i] += row[i];
      }
      const int64_t at = c * shape.pixels + start;
      PD_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) dx[at + i] -= factor * x[at + i] * sum[i];
    }
  }
}

using LrnForward = dnnl::lrn_forward::primitive_desc;
using LrnBackward = dnnl::lrn_backward::primitive_desc;

/// oneDNN's kernels, or empty ones where it has none that are fast.
std::pair<LrnForward, LrnBackward> LibraryKernels(const Context& context, const LrnDesc& desc,
                                                  const MemoryDesc& x) {
  const auto across = dnnl::algorithm::lrn_across_channels;
  const auto alpha = static_cast<float>(desc.alpha);
  const auto beta = static_cast<float>(desc.beta);
  const auto k = static_cast<float>(desc.k);
  const LrnForward forward(
      {dnnl::prop_kind::forward_training, across, x, desc.size, alpha, beta, k}, UserScratchpad(),
      context.engine, /*allow_empty=*/true);
  if (forward.get(true) == nullptr || IsReference(forward)) return {};
  const LrnBackward backward({across, x, x, desc.size, alpha, beta, k}, UserScratchpad(),
                             context.engine, forward, /*allow_empty=*/true);
  if (backward.get(true) == nullptr || IsReference(backward)) return {};
  return {forward, backward};
}

class LibraryLrn : public CpuOp {
 public:
  LibraryLrn(const Context& context, const Layout& x, const LrnForward& forward,
             const LrnBackward& backward)
      : CpuOp(context) {
    info_.y = x;
    info_.backward_reads_x = true;
    info_.saved_bytes = forward.workspace_desc().get_size();
    std::vector<Operand> to_y = {{DNNL_ARG_SRC}, {DNNL_ARG_DST, {}, true}};
    std::vector<Operand> to_dx = {
        {DNNL_ARG_SRC}, {DNNL_ARG_DIFF_DST}, {DNNL_ARG_DIFF_SRC, {}, true}};
    if (info_.saved_bytes > 0) {
      to_y.push_back({DNNL_ARG_WORKSPACE, {}, true});
      to_dx.push_back({DNNL_ARG_WORKSPACE});
    }
    forward_ = Add(forward, to_y);
    backward_ = Add(backward, to_dx);
  }

  void Forward(const OpArgs& args) override {
    if (info_.saved_bytes > 0) {
      forward_->Run({args.x[0], args.y, args.saved}, args.workspace);
    } else {
      forward_->Run({args.x[0], args.y}, args.workspace);
    }
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    if (info_.saved_bytes > 0) {
      backward_->Run({args.x[0], args.dy, args.dx[0], args.saved}, args.workspace);
    } else {
      backward_->Run({args.x[0], args.dy, args.dx[0]}, args.workspace);
    }
  }

 private:
  Kernel* forward_ = nullptr;
  Kernel* backward_ = nullptr;
};

class Lrn : public CpuOp {
 public:
  Lrn(const Context& context, const LrnDesc& desc, const OpRequest& request)
      : CpuOp(context), desc_(desc) {
    const Layout& x = request.x.at(0);
    PD_CHECK(desc.size > 0 && x.dims.size() >= 2, "lrn: size {}, input {}", desc.size,
             ToString(x.dims));
    info_.y = x;
    info_.backward_reads_x = true;
    samples_ = x.dims[0];
    shape_ = {.channels = x.dims[1], .pixels = Elements(x.dims) / samples_ / x.dims[1]};
    elements_ = Elements(x.dims);
    dense_bytes_ = (static_cast<size_t>(elements_) * sizeof(float) + 63) / 64 * 64;
    const size_t copies = x.dense() ? 1 : 4;  // share, then x, dy, dx or x, y
    info_.workspace_bytes = copies * dense_bytes_;
    if (x.dense()) return;
    to_dense_ = Keep(MakeReorder(context_, DescOf(x), PlainDesc(x.dims)), copies * dense_bytes_);
    from_dense_ = Keep(MakeReorder(context_, PlainDesc(x.dims), DescOf(x)), copies * dense_bytes_);
  }

  void Forward(const OpArgs& args) override {
    const float* x = Dense(args.x[0], 1, args);
    float* y = from_dense_ == nullptr ? Floats(args.y) : Copy(2, args);
    const int64_t size = shape_.channels * shape_.pixels;
    ForRanges(context_.threads, samples_, 1, [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n) {
        ForwardSample(x + n * size, shape_, desc_, y + n * size);
      }
    });
    if (from_dense_ != nullptr) from_dense_->Run({y, args.y}, Copy(4, args));
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    const float* x = Dense(args.x[0], 1, args);
    const float* dy = Dense(args.dy, 2, args);
    float* dx = from_dense_ == nullptr ? Floats(args.dx[0]) : Copy(3, args);
    float* share = Copy(0, args);
    const int64_t size = shape_.channels * shape_.pixels;
    ForRanges(context_.threads, samples_, 1, [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n) {
        const int64_t at = n * size;
        BackwardSample(x + at, dy + at, shape_, desc_, share + at, dx + at);
      }
    });
    if (from_dense_ != nullptr) from_dense_->Run({dx, args.dx[0]}, Copy(4, args));
  }

 private:
  float* Copy(size_t index, const OpArgs& args) const {
    return Floats(
        static_cast<void*>(static_cast<std::byte*>(args.workspace) + index * dense_bytes_));
  }

  const float* Dense(const void* data, size_t index, const OpArgs& args) {
    if (to_dense_ == nullptr) return Floats(data);
    to_dense_->Run({data, Copy(index, args)}, Copy(4, args));
    return Copy(index, args);
  }

  LrnDesc desc_;
  Shape2 shape_{};
  int64_t samples_ = 0, elements_ = 0;
  size_t dense_bytes_ = 0;
  Kernel* to_dense_ = nullptr;
  Kernel* from_dense_ = nullptr;
};

}  // namespace

std::unique_ptr<Op> MakeLrn(const Context& context, const LrnDesc& desc, const OpRequest& request) {
  const Layout& x = request.x.at(0);
  if (x.dims.size() == 4) {
    const auto [forward, backward] = LibraryKernels(context, desc, DescOf(x));
    if (forward.get(true) != nullptr) {
      return std::make_unique<LibraryLrn>(context, x, forward, backward);
    }
  }
  return std::make_unique<Lrn>(context, desc, request);
}

}  // namespace pd::cpu
