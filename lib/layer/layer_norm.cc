#include "layer/layer_norm.h"

namespace pd {
namespace {

class LayerNorm : public Layer {
 public:
  explicit LayerNorm(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"eps", "init"});
    reader.RequireInputs(1);
    const Shape& in = reader.Input(0);
    if (in.empty()) reader.FailInput(0, "f32 […, D]");
    constexpr double kLeastEps = 1e-12;  // a constant row divides by its root
    desc_.eps = reader.Number("eps", kLeastEps, 1, desc_.eps);
    output_ = reader.Output(in);
    const Shape width = {in.back()};
    params_ = reader.Params({{"weight", width, {Init::Kind::kConstant, 1}},
                             {"bias", width, {Init::Kind::kConstant, 0}}});
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanLayerNorm(desc_, request);
  }

 private:
  LayerNormDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> MakeLayerNorm(const LayerReader& reader) {
  return std::make_unique<LayerNorm>(reader);
}

}  // namespace pd
