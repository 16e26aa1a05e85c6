#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace pd {

/// Appends what belongs to the forward of `minibatch`: receive, forward, and send unless `stage` is
/// the last.
void AppendForward(const PipelineShape& shape, int stage, int64_t minibatch, int64_t version,
                   std::vector<Action>& actions);
/// Appends what belongs to the backward of `minibatch`: receive unless `stage` is the last,
/// backward, and send unless it is the first.
void AppendBackward(const PipelineShape& shape, int stage, int64_t minibatch, int64_t version,
                    std::vector<Action>& actions);

/// Refuses (kInternal) a stage or replica that the shape does not have, and counts below their
/// minimum.
void CheckWorkerExists(const PipelineShape& shape, int stage, int replica, int64_t minibatches);

}  // namespace pd
