#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plan/plan.h"

namespace pd {

/// Whether `text` looks like a profile of the PipeDream authors' Python repository (*.graph.txt):
/// its first line that is not blank starts with "node" and a number, or is such an edge.
bool LooksLikeGraphText(std::string_view text);

/// Reads such a profile: a line a node, in any order, then a line an edge.
///
///     node5 -- Conv2d(64, 64, …) -- forward_compute_time=1.2, backward_compute_time=3.4,
///              activation_size=51380224.000, parameter_size=147712.000      (one line)
///     <tab>node4 -- node5
///
/// Times are ms a minibatch, sizes bytes a minibatch, in decimal or scientific notation;
/// an activation_size of several tensors, [a; b], is their sum. A last field " -- stage_id=N",
/// which the authors' optimizer adds, is no part of a profile and is left out. The result has no
/// model.
///
/// Layers are named "node5 Conv2d" and stand in topological order, of the nodes that may come next
/// always the one with the smallest number. A node "Input" (or "Input0", …) becomes the graph input
/// "node1 Input": its time, of loading data, and its size are left out. Another node that reads
/// nothing gets a graph input of its own, "input of node7", since in profile/1 a layer without
/// inputs reads the layer before it.
///
/// Such a file does not say how many samples its minibatch had: `batch_size` does. `file` is the
/// name used in complaints. Throws kInvalidInput, "FILE:LINE: expected …, found …": a missing batch
/// size, another form of line, unknown or repeated fields, numbers that are negative, no numbers or
/// too large, a node twice, an edge to an unknown node or twice, a cycle, no layers.
Profile ReadGraphText(std::string_view text, const std::string& file,
                      std::optional<int64_t> batch_size);

}  // namespace pd
