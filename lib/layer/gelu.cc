#include "layer/gelu.h"

namespace pd {
namespace {

class Gelu : public Layer {
 public:
  explicit Gelu(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"approximate"});
    reader.RequireInputs(1);
    desc_.tanh = reader.Choice("approximate", {"none", "tanh"}) == "tanh";
    output_ = reader.Output(reader.Input(0));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanGelu(desc_, request);
  }

 private:
  GeluDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> MakeGelu(const LayerReader& reader) {
  return std::make_unique<Gelu>(reader);
}

}  // namespace pd
