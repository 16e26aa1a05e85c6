#pragma once

#include <utility>
#include <vector>

#include "partition/simulator.h"

namespace pd {

/// A pipeline by hand: bytes equal ms on links of 1 byte a ms.
struct HandMade {
  PipelineShape shape;
  SimulatedPipeline pipeline;

  /// One level of `workers` workers.
  explicit HandMade(int workers, double latency_ms = 0) {
    pipeline.levels = {{workers, 1, latency_ms}};
  }
  HandMade& Stage(int replicas, int in_flight, double forward, double backward,
                  std::vector<SimulatedPipeline::Bucket> buckets = {}) {
    int first = 0;
    for (const auto& each : shape.stages) first += each.replicas;
    shape.stages.push_back({replicas, in_flight});
    pipeline.stages.push_back({first, forward, backward, std::move(buckets)});
    return *this;
  }
  /// A tensor from `from` to `to`, sent at the end of the pass, and its gradient back.
  HandMade& Edge(int from, int to, int64_t bytes) {
    pipeline.messages.push_back({from, to, false, bytes, pipeline.stages[from].forward_ms});
    pipeline.messages.push_back({to, from, true, bytes, pipeline.stages[to].backward_ms});
    return *this;
  }
  double Period() const { return Simulate("1f1b", shape, pipeline).minibatch_ms; }
};

}  // namespace pd
