#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pd {

/// What a schedule knows of a plan: for each stage its replicas and the depth of each replica.
struct PipelineShape {
  struct Stage {
    int replicas = 1;
    int in_flight = 1;  ///< D_s: minibatches a replica may have between forward and backward.
  };
  std::vector<Stage> stages;

  int num_stages() const { return static_cast<int>(stages.size()); }
};

/// Default depth, ⌈(Σ_{t≥s} r_t)/r_s⌉; for the input stage the paper's NOAM (arXiv 1806.03377
/// §3.2).
int DefaultInFlight(const PipelineShape& shape, int stage);

enum class ActionKind : uint8_t {
  kReceiveInputs,     ///< Wait for the inputs of `minibatch` (input stage: from the data loader).
  kForward,           ///< Forward of `minibatch` on weight version `version`.
  kSendOutputs,       ///< Its outputs go to the stages that read them.
  kReceiveGradients,  ///< Wait for the gradients of its outputs.
  kBackward,          ///< Backward of `minibatch`, on the version that its forward used.
  kSendGradients,     ///< The gradients of its inputs go back.
  kUpdate,  ///< Close the round whose first minibatch is `minibatch`: all-reduce, write `version`.
};

std::string_view NameOf(ActionKind kind);

/// One step of a worker's static list. `minibatch` counts from 0 within the segment (the
/// minibatches between two drains of the pipeline), and `version` counts the segment's updates: 0
/// is the newest weights at its start.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int64_t minibatch = 0;
  int64_t version = 0;

  bool operator==(const Action&) const = default;
};

/// The actions of replica `replica` of stage `stage` for a segment of `minibatches` minibatches
/// under the schedule `name`. Throws kInvalidInput for an unknown name (with the list), and for
/// depths with which the schedule would lock up (1f1b: (D_s − 1)·r_s must not grow from one stage
/// to the next).
std::vector<Action> MakeActions(std::string_view name, const PipelineShape& shape, int stage,
                                int replica, int64_t minibatches);

/// Receive, forward and send of each minibatch of an evaluation, on the newest weights (version 0).
std::vector<Action> MakeEvaluationActions(const PipelineShape& shape, int stage, int replica,
                                          int64_t minibatches);

/// Names that MakeActions knows.
std::vector<std::string_view> ScheduleNames();

/// 1F1B-RR: minibatch b runs on replica b mod r_s of stage s.
inline int ReplicaOf(const PipelineShape& shape, int stage, int64_t minibatch) {
  return static_cast<int>(minibatch % shape.stages[stage].replicas);
}

}  // namespace pd
