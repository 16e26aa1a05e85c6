#include "stage/model_plan.h"

#include <fmt/format.h>

#include "base/error.h"

namespace pd {
namespace {

std::unique_ptr<Op> PlanLayer(const Model& model, const Layer& layer, Backend& backend,
                              const OpRequest& request, uint64_t seed) {
  try {
    return layer.Plan(backend, request, seed);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("model \"{}\": layer \"{}\": {}", model.name(), layer.name(),
                                      e.what()));
  }
}

}  // namespace

ModelPlan::ModelPlan(const Model& model, Backend& backend, int64_t batch, uint64_t seed,
                     const ModelPlan* parameters)
    : batch_(batch) {
  const auto with_batch = [batch](const Shape& shape) {
    Shape dims = {batch};
    dims.insert(dims.end(), shape.begin(), shape.end());
    return dims;
  };
  for (const Model::Input& input : model.inputs()) {
    const DType dtype = input.spec.dtype == DType::kI32 ? DType::kI32 : backend.dtype();
    layouts_.push_back(DenseLayout(with_batch(input.spec.shape), dtype));
  }
  for (int l = 0; l < model.num_layers(); ++l) {
    const Model::Node& node = model.layers()[l];
    OpRequest request;
    for (const TensorId input : node.inputs) request.x.push_back(layouts_[input]);
    request.wants_dx = node.wants_dx;
    if (parameters != nullptr) request.params = parameters->op(l).info().params;
    ops_.push_back(PlanLayer(model, *node.layer, backend, request, seed));
    layouts_.push_back(ops_.back()->info().y);
  }
}

}  // namespace pd
