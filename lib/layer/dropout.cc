#include "layer/dropout.h"

#include <fmt/format.h>

namespace pd {
namespace {

class Dropout : public Layer {
 public:
  explicit Dropout(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"p"});
    reader.RequireInputs(1);
    const double p = reader.Number("p", 0, 1, 0.5);
    p_ = static_cast<float>(p);
    if (p_ >= 1) reader.FailKey("p", "a number from 0 to below 1", fmt::format("{}", p));
    output_ = reader.Output(reader.Input(0));
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request,
                           uint64_t seed) const override {
    return backend.PlanDropout({.p = p_, .key = LayerKey(seed, name(), "dropout")}, request);
  }

 private:
  float p_ = 0;
};

}  // namespace

std::unique_ptr<Layer> MakeDropout(const LayerReader& reader) {
  return std::make_unique<Dropout>(reader);
}

}  // namespace pd
