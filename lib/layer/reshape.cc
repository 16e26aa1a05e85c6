#include "layer/reshape.h"

#include <fmt/format.h>

namespace pd {
namespace {

class Reshape : public Layer {
 public:
  explicit Reshape(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"shape"});
    reader.RequireInputs(1);
    const TensorSpec& in = reader.Spec(0);
    const Shape shape = reader.Extents("shape", /*required=*/true);
    if (!IsSane(shape) || Elements(shape) != Elements(in.shape)) {
      reader.FailKey("shape",
                     fmt::format("a shape of {} elements, as the input {} {} has",
                                 Elements(in.shape), NameOf(in.dtype), ToString(in.shape)),
                     ToString(shape));
    }
    output_ = {shape, in.dtype};
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanReshape(output_.shape, request);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeReshape(const LayerReader& reader) {
  return std::make_unique<Reshape>(reader);
}

}  // namespace pd
