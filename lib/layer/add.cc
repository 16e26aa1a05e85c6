#include "layer/add.h"

namespace pd {
namespace {

class Add : public Layer {
 public:
  explicit Add(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({});
    if (reader.num_inputs() < 2) {
      reader.FailKey("inputs", "two or more inputs for add \"" + reader.name() + "\"",
                     std::to_string(reader.num_inputs()));
    }
    const Shape& first = reader.Input(0);
    for (size_t i = 1; i < reader.num_inputs(); ++i) {
      if (reader.Input(i) != first)
        reader.FailInput(i, "f32 " + ToString(first) + ", like the first,");
    }
    output_ = reader.Output(first);
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanAdd(request);
  }
};

}  // namespace

std::unique_ptr<Layer> MakeAdd(const LayerReader& reader) { return std::make_unique<Add>(reader); }

}  // namespace pd
