#include "layer/attention.h"

#include <fmt/format.h>

namespace pd {
namespace {

class Attention : public Layer {
 public:
  explicit Attention(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"heads", "causal"});
    reader.RequireInputs(1);
    const Shape& in = reader.Input(0);
    if (in.size() != 2 || in[1] % 3 != 0) reader.FailInput(0, "f32 [T, 3·D]");
    const int64_t width = in[1] / 3;
    desc_.heads = reader.Int("heads", 1);
    if (width % desc_.heads != 0) {
      reader.FailKey("heads", fmt::format("a divisor of {}, a third of the features", width),
                     std::to_string(desc_.heads));
    }
    if (!IsSane({desc_.heads, in[0], in[0]})) {
      reader.FailInput(0, fmt::format("heads·T·T up to {}", kMaxElements));
    }
    desc_.causal = reader.Bool("causal", false);
    output_ = reader.Output({in[0], width});
  }

  /// q·kᵀ and its product with v; `causal` computes what it hides, too.
  double ForwardFlops() const override {
    return 4 * static_cast<double>(output_.shape[0]) * static_cast<double>(Elements(output_.shape));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanAttention(desc_, request);
  }

 private:
  AttentionDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> MakeAttention(const LayerReader& reader) {
  return std::make_unique<Attention>(reader);
}

}  // namespace pd
