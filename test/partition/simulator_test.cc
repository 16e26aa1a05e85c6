#include "partition/simulator.h"

#include <fmt/core.h>

#include "support/catch.h"

namespace pd {
namespace {

PipelineShape Shape(const std::vector<std::pair<int, int>>& replicas_and_depths) {
  PipelineShape shape;
  for (const auto& [replicas, depth] : replicas_and_depths)
    shape.stages.push_back({replicas, depth});
  return shape;
}

// Two stages of 1 ms forward and 1 ms backward each, `transfer` ms a message.
SimulatedPipeline TwoStages(double transfer, double latency = 0) {
  SimulatedPipeline pipeline;
  pipeline.stages = {{1, 1, 0, 0}, {1, 1, 0, 0}};
  pipeline.messages = {{0, 1, false, transfer}, {1, 0, true, transfer}};
  pipeline.latency_ms = latency;
  return pipeline;
}

double Period(const PipelineShape& shape, const SimulatedPipeline& pipeline) {
  return Simulate("1f1b", shape, pipeline).minibatch_ms;
}

TEST_CASE("one worker needs forward, backward and update for each minibatch") {
  SimulatedPipeline pipeline;
  pipeline.stages = {{1, 2, 0.5, 0}};
  CHECK(Period(Shape({{1, 1}}), pipeline) == Approx(3.5));
}

TEST_CASE("two balanced stages over a free network work all the time") {
  CHECK(Period(Shape({{1, 2}, {1, 1}}), TwoStages(0)) == Approx(2));
}

TEST_CASE("transfers are hidden only with more minibatches in flight") {
  // A minibatch's round trip is 4 + 2 · 0.5 ms; the stage needs 2 ms a minibatch.
  CHECK(Period(Shape({{1, 1}, {1, 1}}), TwoStages(0.5)) == Approx(5));
  CHECK(Period(Shape({{1, 2}, {1, 1}}), TwoStages(0.5)) == Approx(5.0 / 2));
  CHECK(Period(Shape({{1, 3}, {1, 1}}), TwoStages(0.5)) == Approx(2));
  CHECK(Period(Shape({{1, 2}, {1, 1}}), TwoStages(0.25, 0.25)) == Approx(5.0 / 2));
}

TEST_CASE("a slow link bounds the pipeline, each direction by itself") {
  CHECK(Period(Shape({{1, 8}, {1, 1}}), TwoStages(3)) == Approx(3));
}

TEST_CASE("an all-reduce runs beside the backward pass and before the next forward") {
  SimulatedPipeline pipeline;
  pipeline.stages = {{1, 2, 0.5, 1.5}};  // Hidden: 1.5 < 2.
  CHECK(Period(Shape({{3, 1}}), pipeline) == Approx(3.5 / 3));
  pipeline.stages = {{1, 2, 0.5, 4}};  // 1 + 4 + 0.5
  CHECK(Period(Shape({{3, 1}}), pipeline) == Approx(5.5 / 3));
}

TEST_CASE("replicas share the minibatches") {
  SimulatedPipeline pipeline = TwoStages(0);
  pipeline.stages[0] = {2, 2, 0, 0};
  CHECK(Period(Shape({{2, 2}, {1, 1}}), pipeline) == Approx(2));
}

TEST_CASE(
    "a tensor goes once to each stage that reads it, its gradient only if a parameter needs it") {
  std::vector<LayerCost> layers(3);
  for (size_t l = 0; l < 3; ++l) {
    layers[l].name = fmt::format("layer{}", l);
    layers[l].forward_ms = 1;
    layers[l].activation_bytes = 100;
  }
  layers[1].parameter_bytes = 60;
  layers[2].inputs = {"layer0", "layer1", "layer0"};
  layers[1].inputs = {"layer0"};
  const auto pipeline =
      MakePipeline(MakeCostGraph(layers), {{0, 1, 1}, {1, 2, 3}, {2, 3, 1}}, 10, 0.25);
  CHECK(pipeline.stages[1].all_reduce_ms == Approx(2.0 * 2 / 3 * 60 / 10));
  CHECK(pipeline.latency_ms == 0.25);
  REQUIRE(pipeline.messages.size() == 4);
  const auto is = [&](size_t m, int from, int to, bool gradient, double ms) {
    const auto& message = pipeline.messages[m];
    return message.from == from && message.to == to && message.gradient == gradient &&
           message.ms == Approx(ms);
  };
  CHECK(is(0, 0, 1, false, 10));
  CHECK(is(1, 0, 2, false, 10));
  CHECK(is(2, 1, 2, false, 10));
  CHECK(is(3, 2, 1, true, 10));  // Nothing goes back to stage 0, which has no parameters.
}

TEST_CASE("gradients come back as a sum only from the stage with the last consumers") {
  std::vector<LayerCost> layers(5);
  for (size_t l = 0; l < 5; ++l) {
    layers[l].name = fmt::format("layer{}", l);
    layers[l].forward_ms = 1;
    layers[l].inputs = {l == 0 ? "image" : "layer0"};
  }
  layers[0].activation_bytes = 100;
  layers[0].parameter_bytes = 60;
  const auto pipeline =
      MakePipeline(MakeCostGraph(layers), {{0, 1, 1}, {1, 3, 1}, {3, 5, 1}}, 10, 0);
  double middle = 0, last = 0;
  for (const auto& message : pipeline.messages) {
    if (message.gradient) (message.from == 1 ? middle : last) += message.ms;
  }
  CHECK(middle == Approx(20));
  CHECK(last == Approx(10));
}

}  // namespace
}  // namespace pd
