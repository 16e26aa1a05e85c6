#include "layer/position_embedding.h"

namespace pd {
namespace {

class PositionEmbedding : public Layer {
 public:
  explicit PositionEmbedding(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"init"});
    reader.RequireInputs(1);
    const Shape& in = reader.Input(0);
    if (in.size() != 2) reader.FailInput(0, "f32 [T, D]");
    output_ = reader.Output(in);
    params_ = reader.Params({{"weight", in, {Init::Kind::kNormal, 1}}});
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanPositionEmbedding(request);
  }
};

}  // namespace

std::unique_ptr<Layer> MakePositionEmbedding(const LayerReader& reader) {
  return std::make_unique<PositionEmbedding>(reader);
}

}  // namespace pd
