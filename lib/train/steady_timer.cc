#include "train/steady_timer.h"

#include <algorithm>
#include <numeric>

#include "base/clock.h"

namespace pd {
namespace {

// Minibatches until the pipeline is full.
int64_t FilledAfter(const PipelineShape& shape) {
  int64_t minibatches = 0;
  for (const auto& stage : shape.stages) {
    minibatches = std::max<int64_t>(minibatches, int64_t{stage.replicas} * stage.in_flight);
  }
  return 2 * minibatches;
}

}  // namespace

SteadyTimer::SteadyTimer(const PipelineShape& shape) : first_(FilledAfter(shape)), cycle_(1) {
  for (const auto& stage : shape.stages) {
    cycle_ = std::min(std::lcm<int64_t>(cycle_, stage.replicas), kLongestCycle);
  }
}

void SteadyTimer::Begin(int64_t minibatches) {
  seen_ = 0;
  counted_ = minibatches < 2 * first_ ? 0 : (minibatches - first_) / cycle_ * cycle_;
}

void SteadyTimer::Minibatch(int64_t time_ns) {
  ++seen_;
  if (counted_ == 0) return;
  if (seen_ == first_) begin_ns_ = time_ns;
  if (seen_ != first_ + counted_) return;
  ns_ += time_ns - begin_ns_;
  count_ += counted_;
}

double SteadyTimer::minibatch_ms() const {
  return count_ == 0 ? 0 : NsToMs(ns_) / static_cast<double>(count_);
}

}  // namespace pd
