#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/vectorize.h"

// By hand: oneDNN's kernel is fast on blocked layouts only, and does not take the running
// statistics along. All layouts come down to pieces of rows of up to 16 lanes: a blocked layout's
// lanes are channels; a dense image's are pixels of one channel. A sum is taken lane by lane in
// float over up to 256 rows, and the rest in double, so it does not depend on the vector width of
// the processor.

namespace pd::cpu {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kRowsInFloat = 256;

using Lanes = std::array<float, kLanes>;
using Sums = std::array<double, kLanes>;

/// Row r, lane l of a piece lies at start + r·stride + l.
struct Piece {
  int64_t start, rows, stride;
};

enum class Reduction { kSum, kSquares, kProducts };

/// sums[l] += Σ over rows of x, (x - mean)² or dy·(x - mean).
template <Reduction reduction>
[[gnu::always_inline]] inline void Reduce(const float* x, const float* dy, const Piece& piece,
                                          int64_t lanes, const Lanes& mean, Sums* sums) {
  for (int64_t row = 0; row < piece.rows; row += kRowsInFloat) {
    const int64_t end = std::min(piece.rows, row + kRowsInFloat);
    Lanes part{};
    for (int64_t r = row; r < end; ++r) {
      const int64_t at = piece.start + r * piece.stride;
      for (int64_t l = 0; l < lanes; ++l) {
        const float value = x[at + l];
        if constexpr (reduction == Reduction::kSum) part[l] += value;
        if constexpr (reduction == Reduction::kSquares) {
          part[l] += (value - mean[l]) * (value - mean[l]);
        }
        if constexpr (reduction == Reduction::kProducts) part[l] += dy[at + l] * (value - mean[l]);
      }
    }
    for (int64_t l = 0; l < lanes; ++l) (*sums)[l] += static_cast<double>(part[l]);
  }
}

template <Reduction reduction>
[[gnu::always_inline]] inline void ReduceAny(const float* x, const float* dy, const Piece& piece,
                                             int64_t lanes, const Lanes& mean, Sums* sums) {
  // A constant count of lanes makes vectors of them.
  if (lanes == kLanes) {
    Reduce<reduction>(x, dy, piece, kLanes, mean, sums);
  } else if (lanes == kLanes / 2) {
    Reduce<reduction>(x, dy, piece, kLanes / 2, mean, sums);
  } else {
    Reduce<reduction>(x, dy, piece, lanes, mean, sums);
  }
}

PD_CLONES void ReduceSum(const float* x, const Piece& piece, int64_t lanes, Sums* sums) {
  ReduceAny<Reduction::kSum>(x, nullptr, piece, lanes, {}, sums);
}
PD_CLONES void ReduceSquares(const float* x, const Piece& piece, int64_t lanes, const Lanes& mean,
                             Sums* sums) {
  ReduceAny<Reduction::kSquares>(x, nullptr, piece, lanes, mean, sums);
}
PD_CLONES void ReduceProducts(const float* x, const float* dy, const Piece& piece, int64_t lanes,
                              const Lanes& mean, Sums* products, Sums* sums) {
  ReduceAny<Reduction::kProducts>(x, dy, piece, lanes, mean, products);
  ReduceAny<Reduction::kSum>(dy, nullptr, piece, lanes, {}, sums);
}

/// y = (x - mean)·scale + shift.
PD_CLONES void Normalise(const float* x, const Piece& piece, int64_t lanes, const Lanes& mean,
                         const Lanes& scale, const Lanes& shift, float* y) {
  for (int64_t r = 0; r < piece.rows; ++r) {
    const int64_t at = piece.start + r * piece.stride;
    PD_INDEPENDENT
    for (int64_t l = 0; l < lanes; ++l) {
      y[at + l] = (x[at + l] - mean[l]) * scale[l] + shift[l];
    }
  }
}

/// dx = scale·(dy - mean_dy - (x - mean)·slope).
PD_CLONES void Differentiate(const float* x, const float* dy, const Piece& piece, int64_t lanes,
                             const Lanes& mean, const Lanes& scale, const Lanes& mean_dy,
                             const Lanes& slope, float* dx) {
  for (int64_t r = 0; r < piece.rows; ++r) {
    const int64_t at = piece.start + r * piece.stride;
    PD_INDEPENDENT
    for (int64_t l = 0; l < lanes; ++l) {
      dx[at + l] = scale[l] * (dy[at + l] - mean_dy[l] - (x[at + l] - mean[l]) * slope[l]);
    }
  }
}

/// Channels that are computed together: lanes of one block, or one channel whose pixels are lanes.
struct Group {
  int64_t channel, lanes;
  int64_t channels;  ///< Real ones among the lanes.
};

class BatchNorm : public CpuOp {
 public:
  BatchNorm(const Context& context, const BatchNormDesc& desc, const OpRequest& request)
      : CpuOp(context), desc_(desc), view_(ViewOf(request.x.at(0))) {
    values_ = view_.samples * view_.pixels;
    channels_ = view_.channels;
    // Rows of features: the channels are the lanes, the samples the pixels.
    if (view_.pixels == 1 && view_.block == 1) {
      view_ = {.samples = 1, .channels = channels_, .pixels = view_.samples, .block = channels_};
    }
    with_dx_ = request.wants_dx.at(0);
    info_.y = request.x[0];
    info_.params.assign(2, DenseLayout({channels_}, DType::kF32));
    info_.saved_bytes = 2 * static_cast<size_t>(channels_) * sizeof(float);
    info_.backward_reads_x = true;
  }

  void Forward(const OpArgs& args) override {
    ForEachGroup([&](const Group& group) { ForwardGroup(group, args); });
  }

  void BackwardData(const OpArgs& args) override {
    float* dx = Floats(args.dx[0]);
    ForEachGroup([&](const Group& group) { BackwardGroup(group, args, dx); });
  }

  void BackwardWeights(const OpArgs& args) override {
    if (with_dx_) return;
    ForEachGroup([&](const Group& group) { BackwardGroup(group, args, nullptr); });
  }

 private:
  template <typename F>
  void ForEachGroup(F f) const {
    if (view_.block == 1) {
      ForRanges(context_.threads, channels_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) f({.channel = c, .lanes = 0, .channels = 1});
      });
      return;
    }
    const int64_t padded = view_.blocks() * view_.block;
    const int64_t width = std::min(kLanes, view_.block);
    const int64_t groups = (padded + width - 1) / width;
    ForRanges(context_.threads, groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        const int64_t c = g * width;
        f({.channel = c,
           .lanes = std::min(width, padded - c),
           .channels = std::min(width, channels_ - c)});
      }
    });
  }

  /// f(piece, lanes) over all values of a group.
  template <typename F>
  void ForEachPiece(const Group& group, F f) const {
    for (int64_t n = 0; n < view_.samples; ++n) {
      const int64_t start = view_.Offset(n, group.channel, 0);
      if (view_.block > 1) {
        f(Piece{start, view_.pixels, view_.block}, group.lanes);
        continue;
      }
      const int64_t rows = view_.pixels / kLanes;
      const int64_t rest = view_.pixels % kLanes;
      if (rows > 0) f(Piece{start, rows, kLanes}, kLanes);
      if (rest > 0) f(Piece{start + rows * kLanes, 1, kLanes}, rest);
    }
  }

  /// The sums of the group's channels from those of its lanes.
  Sums OfChannels(const Sums& lanes) const {
    if (view_.block > 1) return lanes;
    Sums sums{};
    for (const double lane : lanes) sums[0] += lane;
    return sums;
  }

  /// Lane values from channel values; lanes without a channel get 0.
  template <typename F>
  Lanes OfLanes(const Group& group, F f) const {
    Lanes lanes{};
    if (view_.block == 1) {
      lanes.fill(f(0));
    } else {
      for (int64_t l = 0; l < group.channels; ++l) lanes[l] = f(l);
    }
    return lanes;
  }

  void ForwardGroup(const Group& group, const OpArgs& args) const {
    const float* x = Floats(args.x[0]);
    float* y = Floats(args.y);
    float* saved_mean = Floats(args.saved) + group.channel;
    float* saved_inverse = saved_mean + channels_;
    Lanes mean{};
    Sums variance{};
    if (args.training) {
      mean = MeanOf(group, x);
      Sums squares{};
      ForEachPiece(group, [&](const Piece& piece, int64_t lanes) {
        ReduceSquares(x, piece, lanes, mean, &squares);
      });
      variance = OfChannels(squares);
      for (int64_t c = 0; c < group.channels; ++c) {
        UpdateRunning(args, group.channel + c, mean[c], variance[c]);
        variance[c] /= static_cast<double>(values_);
      }
    } else {
      mean = OfLanes(group, [&](int64_t c) { return Floats(args.state[0])[group.channel + c]; });
      for (int64_t c = 0; c < group.channels; ++c) {
        variance[c] = static_cast<double>(Floats(args.state[1])[group.channel + c]);
      }
    }
    const Lanes inverse = OfLanes(group, [&](int64_t c) {
      return static_cast<float>(1 / std::sqrt(variance[c] + desc_.eps));
    });
    const Lanes scale = OfLanes(
        group, [&](int64_t c) { return Floats(args.params[0])[group.channel + c] * inverse[c]; });
    const Lanes shift =
        OfLanes(group, [&](int64_t c) { return Floats(args.params[1])[group.channel + c]; });
    if (args.training) {
      std::copy_n(mean.begin(), group.channels, saved_mean);
      std::copy_n(inverse.begin(), group.channels, saved_inverse);
    }
    ForEachPiece(group, [&](const Piece& piece, int64_t lanes) {
      Normalise(x, piece, lanes, mean, scale, shift, y);
    });
  }

  Lanes MeanOf(const Group& group, const float* x) const {
    Sums lane_sums{};
    ForEachPiece(
        group, [&](const Piece& piece, int64_t lanes) { ReduceSum(x, piece, lanes, &lane_sums); });
    const Sums sums = OfChannels(lane_sums);
    return OfLanes(group, [&](int64_t c) {
      return static_cast<float>(sums[c] / static_cast<double>(values_));
    });
  }

  void UpdateRunning(const OpArgs& args, int64_t channel, float mean, double squares) const {
    const double unbiased = squares / std::max(1.0, static_cast<double>(values_ - 1));
    const auto blend = [&](void* state, double fresh) {
      float& running = Floats(state)[channel];
      running = static_cast<float>((1 - desc_.momentum) * static_cast<double>(running) +
                                   desc_.momentum * fresh);
    };
    blend(args.state[0], static_cast<double>(mean));
    blend(args.state[1], unbiased);
  }

  /// With z = (x - mean)·inverse: dweight = Σ dy·z, dbias = Σ dy,
  /// dx = weight·inverse·(dy - (dbias + z·dweight)/values).
  void BackwardGroup(const Group& group, const OpArgs& args, float* dx) const {
    const float* x = Floats(args.x[0]);
    const float* dy = Floats(args.dy);
    const float* saved_mean = Floats(args.saved) + group.channel;
    const float* saved_inverse = saved_mean + channels_;
    const Lanes mean = OfLanes(group, [&](int64_t c) { return saved_mean[c]; });
    Sums lane_products{};
    Sums lane_sums{};
    ForEachPiece(group, [&](const Piece& piece, int64_t lanes) {
      ReduceProducts(x, dy, piece, lanes, mean, &lane_products, &lane_sums);
    });
    const Sums products = OfChannels(lane_products);
    const Sums sums = OfChannels(lane_sums);
    for (int64_t c = 0; c < group.channels; ++c) {
      const double dweight = products[c] * static_cast<double>(saved_inverse[c]);
      Floats(args.dparams[0])[group.channel + c] = static_cast<float>(dweight);
      Floats(args.dparams[1])[group.channel + c] = static_cast<float>(sums[c]);
    }
    if (dx == nullptr) return;
    const auto count = static_cast<double>(values_);
    const Lanes scale = OfLanes(group, [&](int64_t c) {
      return Floats(args.params[0])[group.channel + c] * saved_inverse[c];
    });
    const Lanes mean_dy =
        OfLanes(group, [&](int64_t c) { return static_cast<float>(sums[c] / count); });
    const Lanes slope = OfLanes(group, [&](int64_t c) {
      const auto inverse = static_cast<double>(saved_inverse[c]);
      return static_cast<float>(products[c] * inverse * inverse / count);
    });
    ForEachPiece(group, [&](const Piece& piece, int64_t lanes) {
      Differentiate(x, dy, piece, lanes, mean, scale, mean_dy, slope, dx);
    });
  }

  BatchNormDesc desc_;
  ChannelView view_;
  int64_t values_ = 0;  ///< Of a channel.
  int64_t channels_ = 0;
  bool with_dx_ = false;
};

}  // namespace

std::unique_ptr<Op> MakeBatchNorm(const Context& context, const BatchNormDesc& desc,
                                  const OpRequest& request) {
  return std::make_unique<BatchNorm>(context, desc, request);
}

}  // namespace pd::cpu
