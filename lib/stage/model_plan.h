#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace pd {

/// Every layer of a model planned for one minibatch size. Kernels and inner layouts are chosen
/// here, on the whole model, so that they do not depend on how the model is cut into stages.
class ModelPlan {
 public:
  /// `parameters`: a plan of the same model whose parameter layouts this one must share (another
  /// minibatch size over the same weights), or null.
  ModelPlan(const Model& model, Backend& backend, int64_t batch, uint64_t seed,
            const ModelPlan* parameters = nullptr);

  int64_t batch() const { return batch_; }
  Op& op(int layer) const { return *ops_[layer]; }
  /// How `tensor` is stored inside a stage; graph inputs are dense.
  const Layout& layout(TensorId tensor) const { return layouts_[tensor]; }

 private:
  int64_t batch_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Layout> layouts_;
};

}  // namespace pd
