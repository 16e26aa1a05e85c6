#pragma once

#include <string>

#include "model/model.h"

namespace pd {

/// A model of these layers over inputs image [1, 8, 8] and label.
inline std::string Document(const std::string& layers) {
  return R"({"format": "pipedream.model/1", "name": "test", "inputs": [
      {"name": "image", "shape": [1, 8, 8]}, {"name": "label", "shape": [], "dtype": "i32"}],
      "layers": [)" +
         layers + "]}";
}

inline Model ParseText(const std::string& text) {
  return Model::Parse(JsonView::Parse(text, "m.json"));
}
inline Model ParseLayers(const std::string& layers) { return ParseText(Document(layers)); }

}  // namespace pd
