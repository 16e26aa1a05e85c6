#include "layer/softmax_cross_entropy.h"

namespace pd {
namespace {

class SoftmaxCrossEntropy : public Layer {
 public:
  explicit SoftmaxCrossEntropy(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"weight"});
    reader.RequireInputs(2);
    const Shape& logits = reader.Input(0);
    if (logits.size() != 1) reader.FailInput(0, "logits f32 [classes]");
    if (reader.Spec(1) != TensorSpec{{}, DType::kI32}) reader.FailInput(1, "a label i32 []");
    constexpr double kLargestWeight = 1e6;
    weight_ = reader.Number("weight", 0, kLargestWeight, 1);
    classes_ = logits[0];
    output_ = reader.Output({});
  }

  bool is_loss() const override { return true; }
  double loss_weight() const override { return weight_; }
  int64_t classes() const override { return classes_; }

  std::unique_ptr<Op> Plan(Backend& backend, const OpRequest& request, uint64_t) const override {
    return backend.PlanSoftmaxCrossEntropy({.weight = static_cast<float>(weight_)}, request);
  }

 private:
  double weight_ = 1;
  int64_t classes_ = 0;
};

}  // namespace

std::unique_ptr<Layer> MakeSoftmaxCrossEntropy(const LayerReader& reader) {
  return std::make_unique<SoftmaxCrossEntropy>(reader);
}

}  // namespace pd
