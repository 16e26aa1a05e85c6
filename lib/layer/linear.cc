#include "layer/linear.h"

#include <cmath>

namespace pd {
namespace {

class Linear : public Layer {
 public:
  explicit Linear(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"out_features", "bias", "init"});
    reader.RequireInputs(1);
    Shape shape = reader.Input(0);
    if (shape.empty()) reader.FailInput(0, "f32 […, features]");
    in_features_ = shape.back();
    desc_.out_features = reader.Int("out_features", 1);
    desc_.bias = reader.Bool("bias", true);
    shape.back() = desc_.out_features;
    output_ = reader.Output(std::move(shape));

    const Init init{Init::Kind::kUniform, 1 / std::sqrt(static_cast<double>(in_features_))};
    std::vector<ParamSpec> params = {{"weight", {desc_.out_features, in_features_}, init}};
    if (desc_.bias) params.push_back({"bias", {desc_.out_features}, init});
    params_ = reader.Params(std::move(params));
  }

  double ForwardFlops() const override {
    return 2 * static_cast<double>(in_features_) * static_cast<double>(Elements(output_.shape));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanLinear(desc_, request);
  }

 private:
  LinearDesc desc_;
  int64_t in_features_ = 0;
};

}  // namespace

std::unique_ptr<Layer> MakeLinear(const LayerReader& reader) {
  return std::make_unique<Linear>(reader);
}

}  // namespace pd
