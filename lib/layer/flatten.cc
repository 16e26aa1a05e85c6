#include "layer/flatten.h"

namespace pd {
namespace {

class Flatten : public Layer {
 public:
  explicit Flatten(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({});
    reader.RequireInputs(1);
    const TensorSpec& in = reader.Spec(0);
    output_ = reader.Output({Elements(in.shape)});
    output_.dtype = in.dtype;
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanReshape(output_.shape, request);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeFlatten(const LayerReader& reader) {
  return std::make_unique<Flatten>(reader);
}

}  // namespace pd
