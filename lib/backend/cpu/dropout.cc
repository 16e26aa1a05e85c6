#include <algorithm>
#include <bit>

#include "backend/cpu/cpu_op.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"
#include "backend/vectorize.h"
#include "base/random.h"

namespace pd::cpu {
namespace {

constexpr int64_t kGroup = 4;  ///< Elements that one Philox call decides on.

/// Bits of a kept element's mask are all set.
using Mask = uint8_t;

/// The mask of elements [begin, end), both multiples of kGroup: DropoutKeeps, with each Philox call
/// made once.
void DrawMask(uint64_t key, uint64_t minibatch, float p, int64_t begin, int64_t end, Mask* mask) {
  for (int64_t i = begin; i < end; i += kGroup) {
    const auto bits = Philox(key, minibatch, static_cast<uint64_t>(i / kGroup));
    for (int64_t j = 0; j < kGroup; ++j) mask[i + j] = ToUniform(bits[j]) >= p ? 0xFF : 0;
  }
}

/// The value's bits and the mask's, without a branch.
[[gnu::always_inline]] inline float Masked(float value, Mask mask) {
  const auto wide = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(mask)));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & wide);
}

PD_CLONES void ApplyMask(const Mask* mask, const float* from, float kept, float* to,
                         int64_t count) {
  PD_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = Masked(from[i] / kept, mask[i]);
}

/// Draws the mask forward, in dense order, and keeps it for the backward pass.
class Dropout : public CpuOp {
 public:
  Dropout(const Context& context, const DropoutDesc& desc, const OpRequest& request)
      : CpuOp(context), desc_(desc), view_(ViewOf(request.x.at(0))) {
    info_.y = request.x[0];
    count_ = Elements(info_.y.dims);
    mask_bytes_ = (count_ + kGroup - 1) / kGroup * kGroup;
    info_.saved_bytes = static_cast<size_t>(mask_bytes_);
  }

  void Forward(const OpArgs& args) override {
    const float* x = Floats(args.x[0]);
    if (!args.training) {
      std::copy_n(x, info_.y.stored(), Floats(args.y));
      return;
    }
    auto* mask = static_cast<Mask*>(args.saved);
    ForRanges(context_.threads, mask_bytes_, kGroup, [&](int64_t begin, int64_t end) {
      DrawMask(desc_.key, args.minibatch, desc_.p, begin, end, mask);
    });
    Apply(mask, x, Floats(args.y));
  }

  void BackwardData(const OpArgs& args) override {
    if (args.dx[0] == nullptr) return;
    Apply(static_cast<const Mask*>(args.saved), Floats(args.dy), Floats(args.dx[0]));
  }

 private:
  void Apply(const Mask* mask, const float* from, float* to) const {
    const float kept = 1.0F - desc_.p;
    if (view_.block == 1) {
      ForRanges(context_.threads, count_, kElementsAThread, [&](int64_t begin, int64_t end) {
        ApplyMask(mask + begin, from + begin, kept, to + begin, end - begin);
      });
      return;
    }
    ForRanges(context_.threads, view_.samples, 1, [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n) {
        for (int64_t c = 0; c < view_.channels; ++c) {
          const Mask* row = mask + (n * view_.channels + c) * view_.pixels;
          const int64_t start = view_.Offset(n, c, 0);
          for (int64_t i = 0; i < view_.pixels; ++i) {
            const int64_t at = start + i * view_.block;
            to[at] = Masked(from[at] / kept, row[i]);
          }
        }
      }
    });
    ZeroPadding(view_, to);
  }

  DropoutDesc desc_;
  ChannelView view_;
  int64_t count_ = 0, mask_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Op> MakeDropout(const Context& context, const DropoutDesc& desc,
                                const OpRequest& request) {
  return std::make_unique<Dropout>(context, desc, request);
}

}  // namespace pd::cpu
