#include "partition/resources.h"

#include <random>

#include "partition/pipelines.h"
#include "partition/random_graph.h"
#include "support/catch.h"

namespace pd {
namespace {

TEST_CASE("the busiest resource is the slowest device or one direction of a link") {
  HandMade made(3);
  made.Stage(2, 2, 1, 3, {{3, 1, 6}}).Stage(1, 1, 1, 1).Edge(0, 1, 2);
  const auto busiest = [&] { return BusiestResource(made.shape, made.pipeline); };
  // Links of stage 0: 2 / 2 for the tensor and 2 · 1/2 · 6 / 2 for the all-reduce.
  CHECK(busiest().what == "links of stage 0");
  CHECK(busiest().ms == Approx(4));
  made.pipeline.levels[0].bytes_per_ms = 2;
  CHECK(busiest().what == "compute of stage 0");
  CHECK(busiest().ms == Approx(2.5));
  made.pipeline.speeds = {1, 0.5, 1};
  CHECK(busiest().ms == Approx(5));
}

TEST_CASE("links of machines carry what leaves the machine, messages and all-reduces") {
  HandMade made(4);
  made.pipeline.levels = {{2, 1e9, 0}, {2, 1, 0}};
  // Stage 0 on workers 0 to 2, stage 1 on worker 3: of three minibatches the one of replica 2 stays
  // in machine 1.
  made.Stage(3, 1, 1, 1, {{1, 0, 3}}).Stage(1, 1, 1, 1).Edge(0, 1, 30);
  const Bottleneck busiest = BusiestResource(made.shape, made.pipeline);
  CHECK(busiest.what == "links of machine 0");
  // Two replicas in machine 0, each 2 · (3 − 2)/3 · 3 bytes in a round of three minibatches.
  CHECK(busiest.ms == Approx(2.0 / 3 * 30 + 2 * 2.0 / 3));
}

TEST_CASE("no simulation beats the busiest resource") {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    CAPTURE(i);
    HandMade made(8, static_cast<double>(Uniform(random, 0, 3)) / 4);
    made.pipeline.levels = {{2, static_cast<double>(Uniform(random, 1, 9)), 0},
                            {4, static_cast<double>(Uniform(random, 1, 9)), 0.5}};
    const auto stages = static_cast<int>(Uniform(random, 1, 4));
    for (int s = 0; s < stages; ++s) {
      const auto ms = static_cast<double>(Uniform(random, 1, 4));
      const auto replicas = static_cast<int>(Uniform(random, 1, 2));
      made.Stage(replicas, 1, ms, 2 * ms, {{2 * ms, 0.5, Uniform(random, 0, 9)}});
      if (s > 0) made.Edge(s - 1, s, Uniform(random, 0, 9));
    }
    // Deeper, as far as every stage lets enough out.
    const auto ahead = static_cast<int>(Uniform(random, 0, 1) * Uniform(random, 0, 30)) * 2;
    for (int s = 0; s < stages; ++s) {
      auto& stage = made.shape.stages[s];
      stage.in_flight = DefaultInFlight(made.shape, s);
      if (ahead > 0) stage.in_flight = 1 + 2 * (stages - s) * ahead / stage.replicas;
    }
    for (int w = 0; w < 8; ++w) {
      made.pipeline.speeds.push_back(static_cast<double>(Uniform(random, 1, 4)) / 2);
    }
    // Where a pipeline takes long to settle, the measured stretch is not quite steady.
    CHECK(made.Period() >= BusiestResource(made.shape, made.pipeline).ms * (1 - 0.005));
  }
}

}  // namespace
}  // namespace pd
