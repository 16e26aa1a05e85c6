#pragma once

#include <cstdint>
#include <vector>

#include "partition/cost.h"
#include "partition/search.h"
#include "plan/plan.h"
#include "schedule/schedule.h"

namespace pd {

/// What the simulator knows of a pipeline. Times are ms at speed 1 for one minibatch.
struct SimulatedPipeline {
  /// Weights whose gradients are summed over the replicas, and applied, together.
  struct Bucket {
    double ready_ms = 0;  ///< After the start of the backward pass.
    double update_ms = 0;
    int64_t bytes = 0;
  };
  struct Stage {
    int first_worker = 0;  ///< Of the cluster; the replicas stand on consecutive ones, or:
    double forward_ms = 0;
    double backward_ms = 0;         ///< With the second forward pass of a stage that recomputes.
    std::vector<Bucket> buckets;    ///< In the order of the backward pass, the last layers' first.
    std::vector<int> workers = {};  ///< Of each replica, if they are not consecutive.

    int worker(int replica) const {
      return workers.empty() ? first_worker + replica : workers[static_cast<size_t>(replica)];
    }
    double compute_ms() const;
  };
  /// A tensor, or a gradient, that a stage sends to another one for each minibatch.
  struct Message {
    int from = 0, to = 0;
    bool gradient = false;
    int64_t bytes = 0;    ///< With the header.
    double ready_ms = 0;  ///< After the start of the pass that makes it.
  };
  struct Level {
    int workers = 1;
    double bytes_per_ms = 0, latency_ms = 0;
  };
  std::vector<Stage> stages;
  std::vector<Message> messages;
  std::vector<Level> levels;   ///< Innermost first.
  std::vector<double> speeds;  ///< One a worker, or empty.

  double Speed(int worker) const { return speeds.empty() ? 1 : speeds[worker]; }
  /// Of a stage's slowest replica.
  double SlowestSpeed(const PipelineShape& shape, size_t stage) const;
  /// 1 + the highest worker in use.
  int WorkersUsed(const PipelineShape& shape) const;
};

/// The pipeline of a plan's stages on a cluster. A tensor goes once to each stage that reads it, a
/// graph input from stage 0 likewise. A tensor's gradient, where some parameter lies at or before
/// its producer, comes back as one sum from the stage with its last consumers, and from other
/// stages once a consumer (see stage/cut.h for why).
SimulatedPipeline MakePipeline(const CostGraph& graph, const std::vector<StageChoice>& stages,
                               const Cluster& cluster);

/// The shape that a schedule needs: replicas of the stages and `depths`.
PipelineShape ShapeOf(const std::vector<StageChoice>& stages, const std::vector<int>& depths);

/// What a worker of each stage does for one minibatch of the whole pipeline, in the mean over its
/// replicas' turns: bytes through its own link, messages and all-reduces, and its compute time at
/// speed 1.
struct StageLoad {
  double compute_ms = 0, bytes_sent = 0, bytes_received = 0;
};
std::vector<StageLoad> LoadsOf(const PipelineShape& shape, const SimulatedPipeline& pipeline);

}  // namespace pd
