#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace pd {

/// 1F1B-RR with weight stashing: D_s − 1 forwards, then forward, backward, update in turn, then the
/// backwards that are left, each with its update.
/// Source: arXiv 1806.03377 §3.3. Differs: depths of each stage are free, not only NOAM.
/// Round k of stage s holds minibatches k·r_s … k·r_s + r_s − 1; the last closes with what it has.
/// Each replica updates in every round, also where it has no minibatch in it, because it takes part
/// in the all-reduce and must get the new version. Minibatch b runs on version max(0, ⌊b/r_s⌋ − D_s
/// + 1). Throws: kInvalidInput if a stage is deeper than the stage before can feed, so that both
/// would wait for ever: (D_s − 1)·r_s ≥ (D_{s+1} − 1)·r_{s+1} must hold. Default depths always do.
std::vector<Action> OneFOneBActions(const PipelineShape& shape, int stage, int replica,
                                    int64_t minibatches);

}  // namespace pd
