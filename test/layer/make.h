#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layer/layer.h"

namespace pd {

/// The layer of `keys`, for example R"("type": "relu")", named "l", on inputs of the given shapes.
inline std::unique_ptr<Layer> MakeWith(const std::string& keys,
                                       const std::vector<TensorSpec>& inputs) {
  return MakeLayer(JsonView::Parse("{\"name\": \"l\", " + keys + "}", "m.json"), inputs);
}

inline std::unique_ptr<Layer> Make(const std::string& keys, const Shape& input) {
  return MakeWith(keys, {TensorSpec{input}});
}

/// Elements of all parameters, running statistics too.
inline int64_t ParamElements(const Layer& layer) {
  int64_t elements = 0;
  for (const ParamSpec& param : layer.params()) elements += Elements(param.shape);
  return elements;
}

}  // namespace pd
