#include "layer/lrn.h"

namespace pd {
namespace {

class Lrn : public Layer {
 public:
  explicit Lrn(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"size", "alpha", "beta", "k"});
    reader.RequireInputs(1);
    const Shape& in = reader.Image(0);
    constexpr double kLarge = 1e6;
    constexpr double kLeastK = 1e-6;  // zeros are raised to the power -beta with it alone
    desc_.size = reader.Int("size", 1, desc_.size);
    if (desc_.size % 2 == 0) reader.FailKey("size", "an odd number", std::to_string(desc_.size));
    desc_.alpha = reader.Number("alpha", 0, kLarge, desc_.alpha);
    desc_.beta = reader.Number("beta", 0, kLarge, desc_.beta);
    desc_.k = reader.Number("k", kLeastK, kLarge, desc_.k);
    output_ = reader.Output(in);
  }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanLrn(desc_, request);
  }

 private:
  LrnDesc desc_;
};

}  // namespace

std::unique_ptr<Layer> MakeLrn(const LayerReader& reader) { return std::make_unique<Lrn>(reader); }

}  // namespace pd
