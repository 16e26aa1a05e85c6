#include "schedule/generator.h"

#include "base/error.h"

namespace pd {

void AppendForward(const PipelineShape& shape, int stage, int64_t minibatch, int64_t version,
                   std::vector<Action>& actions) {
  actions.push_back({ActionKind::kReceiveInputs, minibatch, version});
  actions.push_back({ActionKind::kForward, minibatch, version});
  if (stage + 1 < shape.num_stages()) {
    actions.push_back({ActionKind::kSendOutputs, minibatch, version});
  }
}

void AppendBackward(const PipelineShape& shape, int stage, int64_t minibatch, int64_t version,
                    std::vector<Action>& actions) {
  if (stage + 1 < shape.num_stages()) {
    actions.push_back({ActionKind::kReceiveGradients, minibatch, version});
  }
  actions.push_back({ActionKind::kBackward, minibatch, version});
  if (stage > 0) actions.push_back({ActionKind::kSendGradients, minibatch, version});
}

void CheckWorkerExists(const PipelineShape& shape, int stage, int replica, int64_t minibatches) {
  PD_CHECK(stage >= 0 && stage < shape.num_stages(), "stage {} of {}", stage, shape.num_stages());
  for (const auto& each : shape.stages) {
    PD_CHECK(each.replicas >= 1 && each.in_flight >= 1, "replicas {}, in flight {}", each.replicas,
             each.in_flight);
  }
  PD_CHECK(replica >= 0 && replica < shape.stages[stage].replicas, "replica {} of {}", replica,
           shape.stages[stage].replicas);
  PD_CHECK(minibatches >= 0, "{} minibatches", minibatches);
}

}  // namespace pd
