#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// timed: a layer of which only times and sizes are known, for device timed. Keys output (array of
/// extents, without the minibatch), parameters (array of extents, []: none), forward_ms,
/// backward_ms, update_ms (0), loss (false: true makes it the loss, whose last input is the label).
std::unique_ptr<Layer> MakeTimed(const LayerReader& reader);

}  // namespace pd
