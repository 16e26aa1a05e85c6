#pragma once

#include <string>
#include <vector>

#include "partition/cost.h"
#include "partition/search.h"
#include "schedule/schedule.h"

namespace pd {

/// What the simulator knows of a pipeline; times in ms, for one minibatch.
struct SimulatedPipeline {
  struct Stage {
    double forward_ms = 0, backward_ms = 0, update_ms = 0;
    double all_reduce_ms = 0;  ///< On each replica's link, both ways at once, a round.
  };
  /// All that a stage sends to another one for a minibatch.
  struct Message {
    int from = 0, to = 0;
    bool gradient = false;
    double ms = 0;
  };
  std::vector<Stage> stages;
  std::vector<Message> messages;
  double latency_ms = 0;
};

/// The pipeline of a plan's stages. A tensor goes once to each stage that reads it. Its gradient,
/// where some parameter lies at or before its producer, comes back as one sum from the stage with
/// its last consumers, and from other stages once a consumer (see stage/cut.h for why).
SimulatedPipeline MakePipeline(const CostGraph& graph, const std::vector<StageChoice>& stages,
                               double bytes_per_ms, double latency_ms);

struct Simulation {
  double minibatch_ms = 0;  ///< Steady-state period of the whole pipeline.
  int64_t actions = 0;      ///< Work done by the simulation itself.
};

/// Runs the action lists of `schedule` on one device a worker and a link a worker that sends one
/// message and receives one message at a time, in the order in which they are ready. An all-reduce
/// takes its replicas' links from when the last of them starts its backward pass; the update waits
/// for both. The period is measured between two minibatches far from start and end.
Simulation Simulate(const std::string& schedule, const PipelineShape& shape,
                    const SimulatedPipeline& pipeline);

}  // namespace pd
