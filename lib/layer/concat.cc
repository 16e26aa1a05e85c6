#include "layer/concat.h"

#include <algorithm>

namespace pd {
namespace {

class Concat : public Layer {
 public:
  explicit Concat(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({});
    if (reader.num_inputs() < 2) {
      reader.FailKey("inputs", "two or more inputs for concat \"" + reader.name() + "\"",
                     std::to_string(reader.num_inputs()));
    }
    Shape shape = reader.Input(0);
    if (shape.empty()) reader.FailInput(0, "f32 [C, …]");
    for (size_t i = 1; i < reader.num_inputs(); ++i) {
      const Shape& in = reader.Input(i);
      const bool fits =
          in.size() == shape.size() && std::equal(in.begin() + 1, in.end(), shape.begin() + 1);
      if (!fits) {
        reader.FailInput(
            i, "f32 " + ToString(reader.Input(0)) + " up to the channels, like the first,");
      }
      shape[0] += in[0];
    }
    output_ = reader.Output(std::move(shape));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanConcat(request);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeConcat(const LayerReader& reader) {
  return std::make_unique<Concat>(reader);
}

}  // namespace pd
