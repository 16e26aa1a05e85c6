#include "layer/lstm.h"

#include <fmt/format.h>

#include <cmath>

namespace pd {
namespace {

constexpr int64_t kMostLayers = 64;

class Lstm : public Layer {
 public:
  explicit Lstm(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"hidden_size", "num_layers", "return_state", "init"});
    if (reader.num_inputs() != 1 && reader.num_inputs() != 2) {
      reader.FailKey("inputs",
                     fmt::format("x and, optionally, a state for lstm \"{}\"", reader.name()),
                     fmt::format("{} inputs", reader.num_inputs()));
    }
    const Shape& x = reader.Input(0);
    if (x.size() != 2) reader.FailInput(0, "f32 [steps, features]");
    desc_.hidden = reader.Int("hidden_size", 1);
    desc_.layers = reader.Int("num_layers", 1, 1);
    if (desc_.layers > kMostLayers) {
      reader.FailKey("num_layers", fmt::format("at most {}", kMostLayers),
                     std::to_string(desc_.layers));
    }
    desc_.return_state = reader.Bool("return_state", false);
    const Shape state = {2 * desc_.layers, desc_.hidden};
    if (reader.num_inputs() == 2 && reader.Input(1) != state) {
      reader.FailInput(1, fmt::format("a state f32 {}", ToString(state)));
    }
    steps_ = x[0];
    features_ = x[1];
    output_ = reader.Output({steps_ + (desc_.return_state ? state[0] : 0), desc_.hidden});
    params_ = reader.Params(Specs());
  }

  double ForwardFlops() const override {
    const auto inputs = static_cast<double>(features_ + (2 * desc_.layers - 1) * desc_.hidden);
    return 8 * static_cast<double>(steps_) * static_cast<double>(desc_.hidden) * inputs;
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanLstm(desc_, request);
  }

 private:
  std::vector<ParamSpec> Specs() const {
    const int64_t hidden = desc_.hidden;
    const Init init{Init::Kind::kUniform, 1 / std::sqrt(static_cast<double>(hidden))};
    std::vector<ParamSpec> params;
    for (int64_t l = 0; l < desc_.layers; ++l) {
      const int64_t in = l == 0 ? features_ : hidden;
      params.push_back({fmt::format("weight_ih_l{}", l), {4 * hidden, in}, init});
      params.push_back({fmt::format("weight_hh_l{}", l), {4 * hidden, hidden}, init});
      params.push_back({fmt::format("bias_ih_l{}", l), {4 * hidden}, init});
      params.push_back({fmt::format("bias_hh_l{}", l), {4 * hidden}, init});
    }
    return params;
  }

  LstmDesc desc_;
  int64_t steps_ = 0, features_ = 0;
};

}  // namespace

std::unique_ptr<Layer> MakeLstm(const LayerReader& reader) {
  return std::make_unique<Lstm>(reader);
}

}  // namespace pd
