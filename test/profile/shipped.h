#pragma once

#include <string>

#include "base/file.h"
#include "profile/profiler.h"

namespace pd {

inline Model LoadShipped(const std::string& name) {
  const std::string path = std::string(PD_SOURCE_DIR) + "/models/" + name + ".json";
  return Model::Parse(JsonView::Parse(ReadFile(path), path));
}

/// The profile with all times 0: what must not depend on the run.
inline Profile WithoutTimes(Profile profile) {
  profile.whole_ms = 0;
  for (LayerCost& layer : profile.layers) {
    layer.forward_ms = layer.backward_ms = 0;
    layer.update_ms = layer.forward_p90_ms = layer.backward_p90_ms = 0;
  }
  return profile;
}

}  // namespace pd
