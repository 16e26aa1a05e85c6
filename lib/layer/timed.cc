#include "layer/timed.h"

namespace pd {
namespace {

constexpr double kMostMs = 1e9;

class Timed : public Layer {
 public:
  explicit Timed(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"output", "parameters", "forward_ms", "backward_ms", "update_ms", "loss"});
    loss_ = reader.Bool("loss", false);
    for (size_t i = 0; i < reader.num_inputs(); ++i) {
      if (!loss_ || i + 1 < reader.num_inputs()) reader.Input(i);  // refuses what is not f32
    }
    if (loss_ && (reader.num_inputs() == 0 ||
                  reader.Spec(reader.num_inputs() - 1) != TensorSpec{{}, DType::kI32})) {
      reader.FailKey("inputs", "a label i32 [] as the last input of a loss", "none");
    }
    desc_.output = loss_ ? Shape{kLossColumns} : reader.Extents("output");
    desc_.parameters = reader.Extents("parameters");
    desc_.forward_ms = reader.Number("forward_ms", 0, kMostMs, 0);
    desc_.backward_ms = reader.Number("backward_ms", 0, kMostMs, 0);
    desc_.update_ms = reader.Number("update_ms", 0, kMostMs, 0);
    output_ = reader.Output(desc_.output);
    if (!desc_.parameters.empty()) params_ = reader.Params({{"weight", desc_.parameters, {}}});
  }

  bool is_loss() const override { return loss_; }
  int64_t limit() const override { return loss_ ? 2 : 0; }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanTimed(desc_, request);
  }

 private:
  TimedDesc desc_;
  bool loss_ = false;
};

}  // namespace

std::unique_ptr<Layer> MakeTimed(const LayerReader& reader) {
  return std::make_unique<Timed>(reader);
}

}  // namespace pd
