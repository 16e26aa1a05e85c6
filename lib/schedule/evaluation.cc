#include "schedule/generator.h"

namespace pd {

std::vector<Action> MakeEvaluationActions(const PipelineShape& shape, int stage, int replica,
                                          int64_t minibatches) {
  CheckWorkerExists(shape, stage, replica, minibatches);
  std::vector<Action> actions;
  for (int64_t b = replica; b < minibatches; b += shape.stages[stage].replicas) {
    AppendForward(shape, stage, b, 0, actions);
  }
  return actions;
}

}  // namespace pd
