#include "layer/concat.h"

#include <fmt/format.h>

namespace pd {
namespace {

class Concat : public Layer {
 public:
  explicit Concat(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"axis"});
    if (reader.num_inputs() < 2) {
      reader.FailKey("inputs", "two or more inputs for concat \"" + reader.name() + "\"",
                     std::to_string(reader.num_inputs()));
    }
    Shape shape = reader.Input(0);
    if (shape.empty()) reader.FailInput(0, "f32 [C, …]");
    axis_ = reader.Axis("axis");
    for (size_t i = 1; i < reader.num_inputs(); ++i) {
      Shape in = reader.Input(i);
      if (in.size() == shape.size()) {
        shape[axis_] += in[axis_];
        in[axis_] = shape[axis_];
      }
      if (in != shape) {
        reader.FailInput(i, fmt::format("f32 {}, like the first but for dimension {},",
                                        ToString(reader.Input(0)), axis_));
      }
    }
    output_ = reader.Output(std::move(shape));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanConcat(static_cast<int64_t>(axis_) + 1, request);
  }

 private:
  size_t axis_ = 0;
};

}  // namespace

std::unique_ptr<Layer> MakeConcat(const LayerReader& reader) {
  return std::make_unique<Concat>(reader);
}

}  // namespace pd
