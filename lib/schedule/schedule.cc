#include "schedule/schedule.h"

#include "base/error.h"

namespace pd {

int DefaultInFlight(const PipelineShape& shape, int stage) {
  int workers = 0;
  for (int t = stage; t < shape.num_stages(); ++t) workers += shape.stages[t].replicas;
  const int replicas = shape.stages[stage].replicas;
  return (workers + replicas - 1) / replicas;
}

std::string_view NameOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kReceiveInputs:
      return "receive inputs";
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kSendOutputs:
      return "send outputs";
    case ActionKind::kReceiveGradients:
      return "receive gradients";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kSendGradients:
      return "send gradients";
    case ActionKind::kUpdate:
      return "update";
  }
  Throw(ErrorCode::kInternal, "action kind {} has no name", static_cast<int>(kind));
}

}  // namespace pd
