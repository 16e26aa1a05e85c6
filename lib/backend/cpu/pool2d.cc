#include <algorithm>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

// Pooling on oneDNN, but for averages whose last window, rounded up, leaves the padded image: there
// oneDNN divides by the whole window and PyTorch by the part inside.

namespace pd::cpu {
namespace {

using Tag = dnnl::memory::format_tag;
using PoolForward = dnnl::pooling_forward;
using PoolBackward = dnnl::pooling_backward;

class Pool2d : public CpuOp {
 public:
  Pool2d(const Context& context, const Pool2dDesc& desc, const OpRequest& request)
      : CpuOp(context) {
    const Layout& x = request.x.at(0);
    const bool max = desc.kind == Pool2dDesc::Kind::kMax;
    dnnl::memory::dims after;  // padding behind the image, what rounding up adds included
    for (int i = 0; i < 2; ++i) {
      after.push_back((desc.out[i] - 1) * desc.stride[i] + desc.kernel[i] - x.dims[2 + i] -
                      desc.padding[i]);
    }
    const dnnl::memory::dims kernel(desc.kernel.begin(), desc.kernel.end());
    const dnnl::memory::dims stride(desc.stride.begin(), desc.stride.end());
    const dnnl::memory::dims before(desc.padding.begin(), desc.padding.end());
    const auto algorithm = max                      ? dnnl::algorithm::pooling_max
                           : desc.count_include_pad ? dnnl::algorithm::pooling_avg_include_padding
                                                    : dnnl::algorithm::pooling_avg_exclude_padding;
    const Shape y_dims = {x.dims[0], x.dims[1], desc.out[0], desc.out[1]};
    const MemoryDesc x_stored = DescOf(x);

    using Both = std::pair<PoolForward::primitive_desc, PoolBackward::primitive_desc>;
    const auto describe = [&](const MemoryDesc& x_desc) -> Both {
      Both both;
      both.first = {{dnnl::prop_kind::forward_training, algorithm, x_desc, AnyDesc(y_dims), stride,
                     kernel, before, after},
                    UserScratchpad(),
                    context.engine,
                    /*allow_empty=*/true};
      if (both.first.get(true) == nullptr) return both;
      both.second = {{algorithm, x_desc, both.first.dst_desc(), stride, kernel, before, after},
                     UserScratchpad(),
                     context.engine,
                     both.first,
                     /*allow_empty=*/true};
      return both;
    };
    // Both directions share formats, since the forward one's indices are stored in them.
    Both chosen;
    for (const MemoryDesc& candidate : {x_stored, MemoryDesc(x.dims, kF32, Tag::nChw16c),
                                        MemoryDesc(x.dims, kF32, Tag::nChw8c)}) {
      Both both = describe(candidate);
      if (both.first.get(true) == nullptr || both.second.get(true) == nullptr) continue;
      const bool fast = !IsReference(both.first) && !IsReference(both.second);
      if (chosen.first.get(true) == nullptr || fast) chosen = std::move(both);
      if (fast) break;
    }
    if (chosen.first.get(true) == nullptr) {
      Throw(ErrorCode::kDevice, "pool2d: oneDNN has no kernel for {} with windows of {} by {}",
            ToString(x.dims), desc.kernel[0], desc.kernel[1]);
    }
    const MemoryDesc y_desc = chosen.first.dst_desc();
    info_.y = MakeLayout(y_dims, y_desc);
    std::vector<Operand> forward = {{DNNL_ARG_SRC, x_stored}, {DNNL_ARG_DST, y_desc, true}};
    std::vector<Operand> backward = {{DNNL_ARG_DIFF_DST, y_desc},
                                     {DNNL_ARG_DIFF_SRC, x_stored, true}};
    if (max) {
      info_.saved_bytes = chosen.first.workspace_desc().get_size();
      forward.push_back({DNNL_ARG_WORKSPACE, {}, true});
      backward.push_back({DNNL_ARG_WORKSPACE});
    }
    keeps_indices_ = max;
    forward_ = Add(chosen.first, forward);
    backward_ = Add(chosen.second, backward);
  }

  void Forward(const OpArgs& args) override {
    if (keeps_indices_) {
      forward_->Run({args.x[0], args.y, args.saved}, args.workspace);
    } else {
      forward_->Run({args.x[0], args.y}, args.workspace);
    }
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    if (keeps_indices_) {
      backward_->Run({args.dy, args.dx[0], args.saved}, args.workspace);
    } else {
      backward_->Run({args.dy, args.dx[0]}, args.workspace);
    }
  }

 private:
  static constexpr auto kF32 = dnnl::memory::data_type::f32;

  bool keeps_indices_ = false;
  Kernel* forward_ = nullptr;
  Kernel* backward_ = nullptr;
};

/// Averages over windows that may leave the padded image, in plain loops.
class ClippedAverage : public CpuOp {
 public:
  ClippedAverage(const Context& context, const Pool2dDesc& desc, const OpRequest& request)
      : CpuOp(context), desc_(desc), x_(ViewOf(request.x.at(0))) {
    const Layout& x = request.x[0];
    image_ = {x.dims[2], x.dims[3]};
    const Shape y_dims = {x.dims[0], x.dims[1], desc.out[0], desc.out[1]};
    const auto tag = x_.block == 16 ? Tag::nChw16c : x_.block == 8 ? Tag::nChw8c : Tag::nchw;
    info_.y = MakeLayout(y_dims, MemoryDesc(y_dims, dnnl::memory::data_type::f32, tag));
    y_ = ViewOf(info_.y);
  }

  void Forward(const OpArgs& args) override {
    const float* x = Floats(args.x[0]);
    float* y = Floats(args.y);
    ForEachWindow([&](int64_t n, int64_t c, int64_t out, const Window& window) {
      double sum = 0;
      for (int64_t h = window.begin[0]; h < window.end[0]; ++h) {
        for (int64_t w = window.begin[1]; w < window.end[1]; ++w) {
          sum += static_cast<double>(x[x_.Offset(n, c, h * image_[1] + w)]);
        }
      }
      y[y_.Offset(n, c, out)] = static_cast<float>(sum / window.divisor);
    });
    ZeroPadding(y_, y);
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    const float* dy = Floats(args.dy);
    float* dx = Floats(args.dx[0]);
    std::fill_n(dx, x_.samples * x_.blocks() * x_.block * x_.pixels, 0.0F);
    ForEachWindow([&](int64_t n, int64_t c, int64_t out, const Window& window) {
      const auto share =
          static_cast<float>(static_cast<double>(dy[y_.Offset(n, c, out)]) / window.divisor);
      for (int64_t h = window.begin[0]; h < window.end[0]; ++h) {
        for (int64_t w = window.begin[1]; w < window.end[1]; ++w) {
          dx[x_.Offset(n, c, h * image_[1] + w)] += share;
        }
      }
    });
  }

 private:
  /// The part of the image that one output reads.
  struct Window {
    int64_t begin[2], end[2];
    double divisor;
  };

  Window WindowOf(int64_t p, int64_t q) const {
    Window window{};
    window.divisor = 1;
    const int64_t at[2] = {p, q};
    for (int i = 0; i < 2; ++i) {
      const int64_t begin = at[i] * desc_.stride[i] - desc_.padding[i];
      const int64_t end = std::min(begin + desc_.kernel[i], image_[i] + desc_.padding[i]);
      window.begin[i] = std::max<int64_t>(begin, 0);
      window.end[i] = std::min(end, image_[i]);
      window.divisor *= static_cast<double>(
          desc_.count_include_pad ? end - begin : window.end[i] - window.begin[i]);
    }
    return window;
  }

  template <typename F>
  void ForEachWindow(F f) const {
    ForRanges(context_.threads, x_.samples, 1, [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n) {
        for (int64_t c = 0; c < x_.channels; ++c) {
          for (int64_t p = 0; p < desc_.out[0]; ++p) {
            for (int64_t q = 0; q < desc_.out[1]; ++q) {
              f(n, c, p * desc_.out[1] + q, WindowOf(p, q));
            }
          }
        }
      }
    });
  }

  Pool2dDesc desc_;
  ChannelView x_, y_;
  std::array<int64_t, 2> image_{};
};

bool LeavesPaddedImage(const Pool2dDesc& desc, const Shape& x) {
  for (int i = 0; i < 2; ++i) {
    const int64_t end = (desc.out[i] - 1) * desc.stride[i] + desc.kernel[i];
    if (end > x.at(2 + i) + 2 * desc.padding[i]) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Op> MakePool2d(const Context& context, const Pool2dDesc& desc,
                               const OpRequest& request) {
  if (desc.kind == Pool2dDesc::Kind::kAverage && desc.count_include_pad &&
      LeavesPaddedImage(desc, request.x.at(0).dims)) {
    return std::make_unique<ClippedAverage>(context, desc, request);
  }
  return std::make_unique<Pool2d>(context, desc, request);
}

}  // namespace pd::cpu
