#include "schedule/one_f_one_b.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/generator.h"

namespace pd {
namespace {

// Stage s + 1 starts the backward of b after its forward of b + (D − 1)·r, so the stage before must
// send that much before it gets any gradient of b's round back.
void CheckDepths(const PipelineShape& shape) {
  for (int s = 0; s + 1 < shape.num_stages(); ++s) {
    const auto& feeder = shape.stages[s];
    const auto& reader = shape.stages[s + 1];
    const int64_t ahead = int64_t{feeder.in_flight - 1} * feeder.replicas;
    PD_REQUIRE(
        int64_t{reader.in_flight - 1} * reader.replicas <= ahead,
        "schedule 1f1b: stage {} would wait for ever: expected in_flight of at most {} with its "
        "{} replicas after stage {} (replicas {}, in_flight {}), found {}",
        s + 1, ahead / reader.replicas + 1, reader.replicas, s, feeder.replicas, feeder.in_flight,
        reader.in_flight);
  }
}

}  // namespace

std::vector<Action> OneFOneBActions(const PipelineShape& shape, int stage, int replica,
                                    int64_t minibatches) {
  CheckWorkerExists(shape, stage, replica, minibatches);
  CheckDepths(shape);
  const int64_t replicas = shape.stages[stage].replicas;
  const int64_t depth = shape.stages[stage].in_flight;
  const int64_t rounds = (minibatches + replicas - 1) / replicas;
  // Rounds in which this replica has a minibatch: all, or all but the last.
  const int64_t own = (minibatches - replica + replicas - 1) / replicas;
  const auto minibatch = [&](int64_t round) { return round * replicas + replica; };
  const auto version = [&](int64_t round) { return std::max<int64_t>(0, round - depth + 1); };

  std::vector<Action> actions;
  actions.reserve(static_cast<size_t>(rounds) * 7);
  int64_t next_forward = 0;
  const auto forward = [&] {
    AppendForward(shape, stage, minibatch(next_forward), version(next_forward), actions);
    ++next_forward;
  };
  while (next_forward < std::min(depth - 1, own)) forward();
  for (int64_t round = 0; round < rounds; ++round) {
    if (next_forward < own) forward();
    if (round < own) AppendBackward(shape, stage, minibatch(round), version(round), actions);
    actions.push_back({ActionKind::kUpdate, round * replicas, round + 1});
  }
  return actions;
}

}  // namespace pd
