#include "layer/pad.h"

namespace pd {
namespace {

class Pad : public Layer {
 public:
  explicit Pad(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"before", "after"});
    reader.RequireInputs(1);
    Shape shape = reader.Input(0);
    const Shape before = reader.OneADimension("before", 0);
    const Shape after = reader.OneADimension("after", 0);
    for (size_t d = 0; d < shape.size(); ++d) shape[d] += before[d] + after[d];
    desc_ = {.before = WithBatch(0, before), .after = WithBatch(0, after)};
    output_ = reader.Output(std::move(shape));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanPad(desc_, request);
  }

 private:
  PadDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> MakePad(const LayerReader& reader) { return std::make_unique<Pad>(reader); }

}  // namespace pd
