#include "partition/depth.h"

#include "support/catch.h"

namespace pd {
namespace {

using Depths = std::vector<int>;

// Stages that need `ms` each for a minibatch, one third of it forward; `transfer` ms a message.
SimulatedPipeline Chain(const std::vector<double>& ms, double transfer) {
  SimulatedPipeline pipeline;
  for (size_t s = 0; s < ms.size(); ++s) {
    pipeline.stages.push_back({ms[s] / 3, ms[s] * 2 / 3, 0, 0});
    if (s == 0) continue;
    const int stage = static_cast<int>(s);
    pipeline.messages.push_back({stage - 1, stage, false, transfer});
    pipeline.messages.push_back({stage, stage - 1, true, transfer});
  }
  return pipeline;
}

PipelineShape Replicas(const std::vector<int>& replicas) {
  PipelineShape shape;
  for (const int r : replicas) shape.stages.push_back({r, 1});
  return shape;
}

double Period(PipelineShape shape, const SimulatedPipeline& pipeline, const Depths& depths) {
  for (size_t s = 0; s < depths.size(); ++s) shape.stages[s].in_flight = depths[s];
  return Simulate("1f1b", shape, pipeline).minibatch_ms;
}

TEST_CASE("the default depth stays where it keeps all workers busy") {
  CHECK(ChooseInFlight("1f1b", Replicas({1, 1, 1}), Chain({3, 3, 3}, 0), {99, 99, 99}, 3) ==
        Depths{3, 2, 1});
  CHECK(ChooseInFlight("1f1b", Replicas({1, 1}), Chain({3, 1}, 0.1), {99, 99}, 3) == Depths{2, 1});
  CHECK(ChooseInFlight("1f1b", Replicas({4}), Chain({3}, 0), {99}, 0.75) == Depths{1});
}

TEST_CASE("balanced stages with transfer times get two more a border") {
  CHECK(ChooseInFlight("1f1b", Replicas({1, 1}), Chain({3, 3}, 0.3), {99, 99}, 3) == Depths{3, 1});
  CHECK(ChooseInFlight("1f1b", Replicas({1, 1, 1}), Chain({3, 3, 3}, 0.3), {99, 99, 99}, 3) ==
        Depths{5, 3, 1});
}

TEST_CASE("2-3-1 needs 6, 2, 1") {
  const PipelineShape shape = Replicas({2, 3, 1});
  const SimulatedPipeline pipeline = Chain({2, 3, 1}, 0);
  const Depths chosen = ChooseInFlight("1f1b", shape, pipeline, {99, 99, 99}, 1);
  CAPTURE(chosen, Period(shape, pipeline, {3, 2, 1}), Period(shape, pipeline, chosen));
  CHECK(chosen == Depths{6, 2, 1});
}

TEST_CASE("the depth stays within what the memory holds, and within what stages let out") {
  CHECK(ChooseInFlight("1f1b", Replicas({1, 1}), Chain({3, 3}, 0.3), {2, 1}, 3) == Depths{2, 1});
  CHECK(ChooseInFlight("1f1b", Replicas({1, 1, 1}), Chain({3, 3, 3}, 0.3), {4, 99, 99}, 3)[0] <= 4);
}

}  // namespace
}  // namespace pd
