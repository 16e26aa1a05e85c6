#pragma once

#include <memory>

#include "layer/layer.h"
#include "layer/reader.h"

namespace pd {

/// lstm: x [T, F] and, optionally, the initial state [2·num_layers, H] (h of each layer, then c of
/// each; zeros without) → h of the last layer [T, H] or, with return_state, [T + 2·num_layers, H]:
/// the final state after it, in the form of the initial one. Keys hidden_size, num_layers (1),
/// return_state (false). Parameters of layer l: weight_ih_l{l} [4H, F or H], weight_hh_l{l} [4H,
/// H], bias_ih_l{l}, bias_hh_l{l} [4H], gates in the order i, f, g, o.
std::unique_ptr<Layer> MakeLstm(const LayerReader& reader);

}  // namespace pd
