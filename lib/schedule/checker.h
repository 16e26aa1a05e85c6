#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace pd {

/// The lists of all workers: lists[stage][replica].
using ActionLists = std::vector<std::vector<std::vector<Action>>>;

struct CheckOptions {
  static constexpr int64_t kUnlimited = INT64_MAX;
  /// Messages that may be sent and not yet received between a pair of workers in one direction
  /// before the sender waits. 0: a send waits for its receive.
  int64_t channel_capacity = kUnlimited;
  /// Lists of an evaluation: forwards on version 0 only.
  bool evaluation = false;
};

/// The lists of every worker under the schedule `name`, or for an evaluation.
ActionLists MakeAllActions(std::string_view name, const PipelineShape& shape, int64_t minibatches);
ActionLists MakeAllEvaluationActions(const PipelineShape& shape, int64_t minibatches);

/// Verifies the lists of 1f1b, or of an evaluation, without trusting whoever made them; returns ""
/// or the first fault in one line. Each list alone: every minibatch of the replica runs forward
/// once and backward once, on version max(0, ⌊b/r_s⌋ − D_s + 1), written by then; at most D_s in
/// flight; sends and receives stand beside their passes; round k's update follows the replica's
/// backwards of the round and writes version k + 1. All together, executed with blocking receives,
/// bounded channels and updates as barriers over replicas: every receive meets its send in order,
/// and nobody waits for ever.
std::string CheckActions(const PipelineShape& shape, const ActionLists& lists, int64_t minibatches,
                         const CheckOptions& options = {});

}  // namespace pd
