#include "layer/softmax_cross_entropy.h"

#include <fmt/format.h>

namespace pd {
namespace {

class SoftmaxCrossEntropy : public Layer {
 public:
  explicit SoftmaxCrossEntropy(const LayerReader& reader) : Layer(reader.name(), reader.type()) {
    reader.CheckKeys({"weight"});
    reader.RequireInputs(2);
    const Shape& logits = reader.Input(0);
    if (logits.empty()) reader.FailInput(0, "logits f32 [..., classes]");
    const TensorSpec targets = {{logits.begin(), logits.end() - 1}, DType::kI32};
    if (reader.Spec(1) != targets) {
      reader.FailInput(1, fmt::format("targets i32 {}", ToString(targets.shape)));
    }
    constexpr double kLargestWeight = 1e6;
    weight_ = reader.Number("weight", 0, kLargestWeight, 1);
    classes_ = logits.back();
    output_ = reader.Output({kLossColumns});
  }

  bool is_loss() const override { return true; }
  double loss_weight() const override { return weight_; }
  int64_t limit() const override { return classes_; }

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
