#pragma once

#include <cstdint>

#include "schedule/schedule.h"

namespace pd {

/// The time between minibatches in the middle of segments: without filling and draining. Replicas
/// take turns, so it is taken over whole cycles of turns, whose ends the same worker reports, by
/// its own clock.
class SteadyTimer {
 public:
  explicit SteadyTimer(const PipelineShape& shape);

  /// A segment of `minibatches` begins.
  void Begin(int64_t minibatches);
  /// The next minibatch of the segment was done at `time_ns`.
  void Minibatch(int64_t time_ns);
  /// 0 where all segments were too short for it.
  double minibatch_ms() const;

 private:
  static constexpr int64_t kLongestCycle = int64_t{1} << 40;  // Not reached by any run.
  int64_t first_, cycle_, counted_ = 0, seen_ = 0, begin_ns_ = 0, ns_ = 0, count_ = 0;
};

}  // namespace pd
