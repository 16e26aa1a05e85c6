#include "partition/pipeline.h"

#include <fmt/core.h>

#include "support/catch.h"

namespace pd {
namespace {

constexpr int64_t kHeader = 64;

Cluster OneLevel(int workers) {
  Cluster cluster;
  cluster.levels = {{workers, 10'000, 0.25}};
  return cluster;
}

std::vector<LayerCost> Layers(size_t count) {
  std::vector<LayerCost> layers(count);
  for (size_t l = 0; l < count; ++l) {
    layers[l].name = fmt::format("layer{}", l);
    layers[l].forward_ms = 1;
    layers[l].backward_ms = 2;
    layers[l].activation_bytes = 100;
  }
  return layers;
}

using Messages = std::vector<std::vector<double>>;

// from, to, gradient, bytes without the header, when it is ready.
Messages MessagesOf(const SimulatedPipeline& pipeline) {
  Messages messages;
  for (const auto& m : pipeline.messages) {
    messages.push_back({static_cast<double>(m.from), static_cast<double>(m.to),
                        m.gradient ? 1.0 : 0.0, static_cast<double>(m.bytes - kHeader),
                        m.ready_ms});
  }
  return messages;
}

TEST_CASE(
    "a tensor goes once to each stage that reads it, its gradient only if a parameter needs it") {
  auto layers = Layers(3);
  layers[1].parameter_bytes = 60;
  layers[1].update_ms = 0.5;
  layers[1].inputs = {"layer0"};
  layers[2].inputs = {"layer0", "layer1", "layer0"};
  const std::vector<StageChoice> stages = {{{0}, 0, 1}, {{1}, 1, 3}, {{2}, 4, 1}};
  const auto pipeline = MakePipeline(MakeCostGraph(layers), stages, OneLevel(5));
  CHECK(pipeline.levels[0].bytes_per_ms == 10);
  CHECK(pipeline.levels[0].latency_ms == 0.25);
  REQUIRE(pipeline.stages[1].buckets.size() == 1);
  CHECK(pipeline.stages[1].buckets[0].bytes == 60);
  CHECK(pipeline.stages[1].compute_ms() == Approx(3.5));
  CHECK(pipeline.stages[1].first_worker == 1);
  CHECK(MessagesOf(pipeline) ==  // Nothing goes back to stage 0, which has no parameters.
        Messages{{0, 1, 0, 100, 1}, {0, 2, 0, 100, 1}, {1, 2, 0, 100, 1}, {2, 1, 1, 100, 2}});
  const auto loads = LoadsOf(ShapeOf(stages, {}), pipeline);
  CHECK(loads[0].bytes_sent == Approx(2 * (100 + kHeader)));
  CHECK(loads[1].bytes_sent == Approx((100 + kHeader + 2 * 2 / 3.0 * 60) / 3));
  CHECK(loads[1].bytes_received == Approx((2 * (100 + kHeader) + 2 * 2 / 3.0 * 60) / 3));
  CHECK(loads[2].bytes_received == Approx(2 * (100 + kHeader)));
  CHECK(loads[1].compute_ms == Approx(3.5 / 3));
}

TEST_CASE("gradients come back as a sum only from the stage with the last consumers") {
  auto layers = Layers(5);
  for (size_t l = 0; l < 5; ++l) layers[l].inputs = {l == 0 ? "image" : "layer0"};
  layers[0].parameter_bytes = 60;
  const auto pipeline = MakePipeline(MakeCostGraph(layers),
                                     {{{0}, 0, 1}, {{1, 2}, 1, 1}, {{3, 4}, 2, 1}}, OneLevel(3));
  Messages gradients;
  for (const auto& message : MessagesOf(pipeline)) {
    if (message[2] == 1) gradients.push_back(message);
  }
  CHECK(gradients == Messages{{1, 0, 1, 100, 4}, {1, 0, 1, 100, 2}, {2, 0, 1, 100, 4}});
}

TEST_CASE("labels go from the input stage straight to the stage that reads them") {
  auto layers = Layers(3);
  layers[0].inputs = {"image"};
  layers[2].inputs = {"layer1", "label"};
  const CostGraph graph = MakeCostGraph(layers, {{"image", 5000}, {"label", 256}});
  const auto pipeline = MakePipeline(graph, {{{0}, 0, 1}, {{1}, 1, 1}, {{2}, 2, 1}}, OneLevel(3));
  CHECK(MessagesOf(pipeline) == Messages{{0, 2, 0, 256, 0}, {0, 1, 0, 100, 1}, {1, 2, 0, 100, 1}});
}

TEST_CASE("buckets close at 256 KiB, the last layers' first, each ready when its layers are") {
  auto layers = Layers(5);
  layers[0].parameter_bytes = 1000;
  layers[1].parameter_bytes = 200 << 10;
  layers[3].parameter_bytes = 100 << 10;
  layers[4].parameter_bytes = 500 << 10;
  for (const size_t l : {0, 1, 3, 4}) layers[l].update_ms = 0.25;
  const auto pipeline = MakePipeline(MakeCostGraph(layers), {{{0, 1, 2, 3, 4}, 0, 2}}, OneLevel(2));
  const auto& buckets = pipeline.stages[0].buckets;
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].bytes == 500 << 10);
  CHECK(buckets[0].ready_ms == Approx(2));
  CHECK(buckets[1].bytes == 300 << 10);
  CHECK(buckets[1].ready_ms == Approx(8));
  CHECK(buckets[1].update_ms == Approx(0.5));
  CHECK(buckets[2].bytes == 1000);
  CHECK(buckets[2].ready_ms == Approx(10));
}

TEST_CASE("a stage that recomputes runs its forward pass once more, before all gradients") {
  auto layers = Layers(2);
  layers[0].parameter_bytes = layers[1].parameter_bytes = 8;
  const auto pipeline =
      MakePipeline(MakeCostGraph(layers), {{{0}, 0, 1}, {{1}, 1, 1, true}}, OneLevel(2));
  CHECK(pipeline.stages[1].forward_ms == Approx(1));
  CHECK(pipeline.stages[1].backward_ms == Approx(3));
  CHECK(pipeline.stages[1].buckets[0].ready_ms == Approx(3));
  CHECK(pipeline.messages[1].ready_ms == Approx(3));
}

TEST_CASE("levels of one component add nothing") {
  Cluster cluster;
  cluster.levels = {{1, 5000, 1}, {4, 1000, 2}, {1, 10, 3}};
  const auto pipeline = MakePipeline(MakeCostGraph(Layers(1)), {{{0}, 0, 4}}, cluster);
  REQUIRE(pipeline.levels.size() == 1);
  CHECK(pipeline.levels[0].bytes_per_ms == 1);
}

}  // namespace
}  // namespace pd
