#include "layer/activation.h"

namespace pd {
namespace {

class ActivationLayer : public Layer {
 public:
  ActivationLayer(const LayerReader& reader, Activation activation)
      : Layer(reader.name(), reader.type()), activation_(activation) {
    reader.CheckKeys({});
    reader.RequireInputs(1);
    output_ = reader.Output(reader.Input(0));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanActivation(activation_, request);
  }

 private:
  Activation activation_;
};

}  // namespace

std::unique_ptr<Layer> MakeActivation(const LayerReader& reader) {
  Activation activation = Activation::kRelu;
  if (reader.type() == "tanh") activation = Activation::kTanh;
  if (reader.type() == "sigmoid") activation = Activation::kSigmoid;
  return std::make_unique<ActivationLayer>(reader, activation);
}

}  // namespace pd
