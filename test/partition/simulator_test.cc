#include "partition/simulator.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <random>

#include "partition/pipelines.h"
#include "partition/random_graph.h"
#include "support/catch.h"

namespace pd {
namespace {

using Bucket = SimulatedPipeline::Bucket;

// Two stages of 1 ms forward and 1 ms backward each, `depth` in flight at the first.
HandMade TwoStages(int depth, int64_t bytes, double bytes_per_ms = 1, double latency = 0) {
  HandMade made(2, latency);
  made.pipeline.levels[0].bytes_per_ms = bytes_per_ms;
  made.Stage(1, depth, 1, 1).Stage(1, 1, 1, 1).Edge(0, 1, bytes);
  return made;
}

TEST_CASE("one worker needs forward, backward and update for each minibatch") {
  CHECK(HandMade(1).Stage(1, 1, 1, 2, {{2, 0.5, 100}}).Period() == Approx(3.5));
}

TEST_CASE("a balanced straight pipeline over a free network works all the time") {
  HandMade made(5);
  for (int s = 0; s < 5; ++s) made.Stage(1, 5 - s, 1, 2, {{2, 0.5, 10}});
  for (int s = 0; s < 4; ++s) made.Edge(s, s + 1, 0);
  CHECK(made.Period() == Approx(3.5));
  // A cold start: the first minibatch passes all stages twice before the first stage's first
  // update.
  const SimulatedRun run = SimulateRun("1f1b", made.shape, made.pipeline, 20, false);
  CHECK(run.total_ms == Approx(20 * 3.5 + 4 * 3));
}

TEST_CASE("transfers are hidden only with more minibatches in flight") {
  // A minibatch's round trip is 4 + 2 · 0.5 ms; the stage needs 2 ms a minibatch.
  CHECK(TwoStages(1, 1, 2).Period() == Approx(5));
  CHECK(TwoStages(2, 1, 2).Period() == Approx(5.0 / 2));
  CHECK(TwoStages(3, 1, 2).Period() == Approx(2));
  CHECK(TwoStages(2, 1, 4, 0.25).Period() == Approx(5.0 / 2));
}

TEST_CASE("a slow link bounds the pipeline, each direction by itself") {
  CHECK(TwoStages(8, 3).Period() == Approx(3));
}

TEST_CASE("a large message waits for the receiver's buffer, a small one does not") {
  // Stage 1 is slow and keeps 1 + 2 inputs; stage 0, which no gradient throttles, lets 8 out.
  for (const int64_t bytes : {int64_t{1000}, int64_t{1'000'000}}) {
    HandMade made(2);
    made.pipeline.levels[0].bytes_per_ms = 1e12;
    made.Stage(1, 8, 1, 0).Stage(1, 1, 10, 10);
    made.pipeline.messages = {{0, 1, false, bytes, 1}};
    const SimulatedRun run = SimulateRun("1f1b", made.shape, made.pipeline, 8, true);
    REQUIRE(run.workers[0].messages.size() == 8);
    // The fourth message is ready after 4 ms; a buffer is free when the first backward has ended.
    const int64_t end_ns = run.workers[0].messages[3].end_ns;
    CHECK(end_ns / 1'000'000 == (bytes > 65536 ? 21 : 4));
  }
}

TEST_CASE("an all-reduce runs beside the backward pass and before the update of its weights") {
  // 3 replicas; 2 · 2/3 of the bytes pass a link each way.
  const auto period = [](std::vector<Bucket> buckets, double latency = 0) {
    return HandMade(3, latency).Stage(3, 1, 1, 2, std::move(buckets)).Period();
  };
  CHECK(period({{1, 0.5, 0}}) == Approx(3.5 / 3));
  CHECK(period({{0.5, 0.5, 1}}) == Approx(3.5 / 3));              // 0.5 + 4/3 < 2: hidden
  CHECK(period({{1, 0.5, 3}}) == Approx((1 + 1 + 4 + 0.5) / 3));  // 1 + 4 > 2
  CHECK(period({{1, 0.5, 3}}, 0.25) == Approx((1 + 1 + 4.5 + 0.5) / 3));
  // Small buckets: the parts of both go first, then the sums; the first bucket's update meanwhile.
  CHECK(period({{1, 4, 3}, {2, 0.5, 3}}) == Approx((2 + 6 + 4 + 0.5) / 3));
  CHECK(period({{1, 1, 3}, {2, 0.5, 3}}) == Approx((2 + 8 + 0.5) / 3));
  // Large buckets are done one after the other.
  HandMade large(3);
  large.pipeline.levels[0].bytes_per_ms = 1e9;
  large.Stage(3, 1, 1, 2, {{1, 4, 3'000'000'000}, {2, 0.5, 3'000'000'000}});
  CHECK(large.Period() == Approx((2 + 4 + 4 + 0.5) / 3));
}

TEST_CASE("replicas share the minibatches") {
  CHECK(HandMade(3).Stage(2, 2, 2, 2).Stage(1, 1, 1, 1).Edge(0, 1, 0).Period() == Approx(2));
}

TEST_CASE(
    "a worker of speed 2 needs half the time, and a stage is as slow as its slowest replica") {
  HandMade one(1);
  one.Stage(1, 1, 1, 2, {{2, 1, 0}});
  one.pipeline.speeds = {2};
  CHECK(one.Period() == Approx(2));
  HandMade two(2);
  two.Stage(2, 1, 1, 2, {{2, 1, 0}});
  two.pipeline.speeds = {2, 0.5};
  CHECK(two.Period() == Approx(8.0 / 2));
}

TEST_CASE("traffic between machines passes the machines' links, inside one only the workers'") {
  // Two machines of two workers; a stage of two replicas on each: all messages leave the machine.
  const auto apart = [](double inner, double outer) {
    HandMade made(4);
    made.pipeline.levels = {{2, inner, 0}, {2, outer, 0}};
    made.Stage(2, 8, 1, 1).Stage(2, 4, 1, 1).Edge(0, 1, 12);
    return made.Period();
  };
  CHECK(apart(1e9, 1e9) == Approx(1));
  CHECK(apart(2, 1e9) == Approx(12 / 2 / 2.0));  // Each worker has half of the messages.
  CHECK(apart(1e9, 2) == Approx(12 / 2.0));
  // Two stages inside one machine do not see the outer link.
  HandMade inside(4);
  inside.pipeline.levels = {{2, 4, 0}, {2, 1e-9, 0}};
  inside.Stage(1, 8, 1, 1).Stage(1, 1, 1, 1).Edge(0, 1, 12);
  CHECK(inside.Period() == Approx(3));
}

TEST_CASE("an all-reduce over machines is bound by the slower of both kinds of links") {
  const auto period = [](double inner, double outer) {
    HandMade made(4);
    made.pipeline.levels = {{2, inner, 0}, {2, outer, 0}};
    return made.Stage(4, 1, 0, 1, {{0, 0, 8}}).Period() * 4;
  };
  CHECK(period(2, 1e9) == Approx(2 * 0.75 * 8 / 2));
  // Each half: a machine sends the other its sum of half of the bytes.
  CHECK(period(1e9, 2) == Approx(2 * 0.5 * 8 / 2));
}

TEST_CASE("latency is that of the outermost level that a message passes") {
  HandMade made(4);
  made.pipeline.levels = {{2, 1e9, 0.5}, {2, 1e9, 2}};
  made.Stage(1, 1, 1, 1).Stage(1, 1, 1, 1).Edge(0, 1, 0);
  CHECK(made.Period() == Approx(4 + 2 * 0.5));
  made.pipeline.stages[1].first_worker = 2;
  CHECK(made.Period() == Approx(4 + 2 * 2));
}

TEST_CASE("every schedule ends after any number of minibatches, and every byte is counted") {
  const auto made = [] {
    HandMade hand(6);
    hand.pipeline.levels[0].bytes_per_ms = 1e4;
    hand.Stage(2, 6, 1, 2, {{1, 0.1, 600}, {2, 0.1, 600}}).Stage(3, 2, 2, 2, {{2, 0.2, 900}});
    hand.Stage(1, 1, 0.5, 0.5).Edge(0, 1, 1000).Edge(1, 2, 500).Edge(0, 2, 70'000);
    return hand;
  }();
  for (const std::string_view name : ScheduleNames()) {
    CAPTURE(name);
    for (const int64_t minibatches : {1, 2, 5, 12, 600}) {
      const SimulatedRun run =
          SimulateRun(std::string(name), made.shape, made.pipeline, minibatches, false);
      int64_t sent = 0, received = 0;
      double compute = 0;
      for (const auto& worker : run.workers) {
        sent += worker.bytes_sent;
        received += worker.bytes_received;
        compute += worker.compute_ms;
        CHECK(worker.compute_ms <= run.total_ms * (1 + 1e-12));
      }
      CHECK(sent == received);
      CHECK(compute >= static_cast<double>(minibatches) * (3 + 4 + 1));
      if (minibatches % 6 != 0) continue;
      // Whole rounds: messages, and 2(m − 1)/m of the weights by each replica.
      CHECK(sent == minibatches * 2 * (1000 + 500 + 70'000) + minibatches / 2 * 2 * 1200 +
                        minibatches / 3 * 4 * 900);
      const auto loads = LoadsOf(made.shape, made.pipeline);
      for (const auto& worker : run.workers) {
        const StageLoad& load = loads[static_cast<size_t>(worker.stage)];
        const auto count = static_cast<double>(minibatches);
        CHECK(static_cast<double>(worker.bytes_sent) == Approx(load.bytes_sent * count));
        CHECK(static_cast<double>(worker.bytes_received) == Approx(load.bytes_received * count));
        CHECK(worker.compute_ms == Approx(load.compute_ms * count));
      }
    }
  }
}

TEST_CASE("all-reduces of small and large buckets end, whatever their order") {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    CAPTURE(i);
    HandMade made(4, 0.5);
    made.pipeline.levels[0].bytes_per_ms = 1e6;
    std::vector<Bucket> buckets;
    double ready = 0;
    int64_t bytes = 0;
    for (int b = 0; b < 6; ++b) {
      ready += static_cast<double>(Uniform(random, 0, 2)) * 4;
      buckets.push_back({ready, 0.25, Uniform(random, 1, 2) * Uniform(random, 1, 8'000'000)});
      bytes += buckets.back().bytes;
    }
    made.Stage(3, 3, 1, ready + 1, buckets).Stage(1, 1, 1, 1).Edge(0, 1, 5000);
    const SimulatedRun run = SimulateRun("1f1b", made.shape, made.pipeline, 31, false);
    CHECK(run.total_ms >= 10 * 2 * 2.0 / 3 * static_cast<double>(bytes) / 1e6);
    CHECK(run.total_ms <= 11 * (2 * static_cast<double>(bytes) / 1e6 + ready + 20));
  }
}

TEST_CASE("the long run's pace is the steady period") {
  HandMade made(6);
  made.pipeline.levels[0].bytes_per_ms = 2000;
  made.Stage(3, 2, 3, 5, {{2, 0.1, 4000}, {5, 0.2, 3000}}).Stage(2, 3, 2, 3, {{3, 0.4, 900}});
  made.Stage(1, 1, 0.7, 1.5).Edge(0, 1, 1800).Edge(1, 2, 700);
  made.shape.stages[0].in_flight = 4;
  made.shape.stages[1].in_flight = 3;
  const auto total = [&](int64_t n) {
    return SimulateRun("1f1b", made.shape, made.pipeline, n, false).total_ms;
  };
  CHECK((total(1200) - total(600)) / 600 == Approx(made.Period()).epsilon(1e-3));
}

TEST_CASE("a trace has a track a worker for compute and one for messages, as pd-train's has") {
  const HandMade made = TwoStages(2, 1, 2);
  const SimulatedRun run = SimulateRun("1f1b", made.shape, made.pipeline, 3, true);
  const auto trace = nlohmann::json::parse(FormatTrace(run, 3));
  int forwards = 0, sends = 0;
  for (const auto& event : trace) {
    if (event["ph"] == "M") continue;
    if (event["cat"] == "forward") ++forwards;
    if (event["tid"] == 1) ++sends;
  }
  CHECK(forwards == 2 * 3);
  CHECK(sends == 2 * 3);
  CHECK(trace[0]["args"]["name"] == "rank 0: stage 0 replica 0");
  CHECK(trace[6]["args"]["name"] == "rank 2: idle");
  // Stage 1's first forward begins 1 + 0.5 ms after the start.
  for (const auto& event : trace) {
    if (event["name"] == "forward 1" && event["pid"] == 1) CHECK(event["ts"] == 1500.0);
  }
}

TEST_CASE("a thousand workers take bounded work") {
  HandMade straight(1024), wide(1024);
  for (int s = 0; s < 1024; ++s) straight.Stage(1, 1024 - s, 1, 2, {{2, 0.1, 100}});
  for (int s = 0; s < 1023; ++s) straight.Edge(s, s + 1, 1);
  const Simulation deep = Simulate("1f1b", straight.shape, straight.pipeline);
  CHECK(deep.minibatch_ms >= 3.1 * (1 - 1e-9));
  CHECK(deep.work < 80'000'000);
  wide.pipeline.levels[0].bytes_per_ms = 1e9;
  wide.Stage(1000, 2, 1000, 2000, std::vector<Bucket>(64, {2000, 1, 1000}));
  wide.Stage(24, 1, 24, 48).Edge(0, 1, 1000);
  CHECK(Simulate("1f1b", wide.shape, wide.pipeline).work < 5'000'000);
}

}  // namespace
}  // namespace pd
