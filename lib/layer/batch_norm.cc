#include "layer/batch_norm.h"

namespace pd {
namespace {

class BatchNorm : public Layer {
 public:
  explicit BatchNorm(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"eps", "momentum", "init"});
    reader.RequireInputs(1);
    const Shape& in = reader.Input(0);
    if (in.size() != 1 && in.size() != 3) reader.FailInput(0, "f32 [C] or [C, H, W]");
    constexpr double kLeastEps = 1e-12;  // a constant channel divides by its root
    desc_.eps = reader.Number("eps", kLeastEps, 1, desc_.eps);
    desc_.momentum = reader.Number("momentum", 0, 1, desc_.momentum);
    output_ = reader.Output(in);

    const Shape channels = {in[0]};
    const Init zero{Init::Kind::kConstant, 0};
    const Init one{Init::Kind::kConstant, 1};
    params_ = reader.Params({{"weight", channels, one},
                             {"bias", channels, zero},
                             {"running_mean", channels, zero, false},
                             {"running_var", channels, one, false}});
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanBatchNorm(desc_, request);
  }

 private:
  BatchNormDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> MakeBatchNorm(const LayerReader& reader) {
  return std::make_unique<BatchNorm>(reader);
}

}  // namespace pd
