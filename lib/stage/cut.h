#pragma once

#include <string>
#include <vector>

#include "model/model.h"

namespace pd {

/// A message between two stages that every minibatch sends once.
/// Forward: `tensor`, from the stage of its producer (graph inputs: the input stage, 0) to one
/// stage that reads it. Gradient: the sum, last consumer first, of what the layers `consumers` give
/// for `tensor`, back.
struct BorderMessage {
  TensorId tensor = 0;
  int from = 0, to = 0;  ///< Stages.
  bool gradient = false;
  std::vector<int> consumers;  ///< Gradient: layers, in topological order.
  int tag = 0;  ///< Unique in the cut, from 0: identifies the message to the transport.
};

/// A model cut into stages.
struct Cut {
  std::vector<std::vector<int>> layers;  ///< For each stage, its layers in topological order.
  std::vector<int> stage_of;             ///< For each layer.
  std::vector<BorderMessage> messages;   ///< In tag order.

  int num_stages() const { return static_cast<int>(layers.size()); }
  /// The messages that `stage` receives or sends: indices into `messages`, in tag order.
  std::vector<int> Incoming(int stage, bool gradient) const;
  std::vector<int> Outgoing(int stage, bool gradient) const;
};

/// Cuts `model` at the stages' layer names. Each layer must be in exactly one stage, its inputs in
/// the same or an earlier one (ReadPlan has checked it for users; PD_CHECKed here).
///
/// One defined rounding whatever the cut: the gradient of a tensor is the sum over its consumers,
/// the last one first. A stage that holds the last consumers sends their sum; a stage whose
/// consumers lie between others sends one message a consumer, since a partial sum would round
/// differently.
Cut MakeCut(const Model& model, const std::vector<std::vector<std::string>>& stages);

/// The whole model as one stage.
Cut MakeWholeCut(const Model& model);

}  // namespace pd
