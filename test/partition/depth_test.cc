#include "partition/depth.h"

#include <numeric>

#include "partition/pipelines.h"
#include "support/catch.h"

namespace pd {
namespace {

using Depths = std::vector<int>;

// Stages of `replicas` workers that need `ms` each for a minibatch, one third of it forward;
// `transfer` ms a message.
HandMade Chain(const std::vector<int>& replicas, const std::vector<double>& ms, double transfer) {
  HandMade made(std::accumulate(replicas.begin(), replicas.end(), 0));
  for (size_t s = 0; s < ms.size(); ++s) {
    made.Stage(replicas[s], 1, ms[s] / 3, ms[s] * 2 / 3, {{ms[s] * 2 / 3, 0, 0}});
  }
  for (size_t s = 1; s < ms.size(); ++s) {
    made.Edge(static_cast<int>(s) - 1, static_cast<int>(s), 1000);
  }
  made.pipeline.levels[0].bytes_per_ms = 1000 / transfer;
  return made;
}

// `most`: what fits the memory.
Depths Choose(const HandMade& made, const Depths& most, double bound_ms, int64_t work = 1'000'000) {
  const auto pipeline = [&](const Depths&) -> const SimulatedPipeline& { return made.pipeline; };
  return ChooseInFlight("1f1b", made.shape, pipeline, most, bound_ms, work);
}

TEST_CASE("the default depth stays where it keeps all workers busy") {
  CHECK(Choose(Chain({1, 1, 1}, {3, 3, 3}, 0), {99, 99, 99}, 3) == Depths{3, 2, 1});
  CHECK(Choose(Chain({1, 1}, {3, 1}, 0.1), {99, 99}, 3) == Depths{2, 1});
  CHECK(Choose(Chain({4}, {3}, 0), {99}, 0.75) == Depths{1});
}

TEST_CASE("balanced stages with transfer times get two more a border") {
  CHECK(Choose(Chain({1, 1}, {3, 3}, 0.3), {99, 99}, 3) == Depths{3, 1});
  CHECK(Choose(Chain({1, 1, 1}, {3, 3, 3}, 0.3), {99, 99, 99}, 3) == Depths{5, 3, 1});
}

TEST_CASE("2-3-1 needs 6, 2, 1") {
  const Depths chosen = Choose(Chain({2, 3, 1}, {2, 3, 1}, 0), {99, 99, 99}, 1);
  CAPTURE(chosen);
  CHECK(chosen == Depths{6, 2, 1});
}

TEST_CASE("the depth stays within what the memory holds, and within what stages let out") {
  CHECK(Choose(Chain({1, 1}, {3, 3}, 0.3), {2, 1}, 3) == Depths{2, 1});
  CHECK(Choose(Chain({1, 1, 1}, {3, 3, 3}, 0.3), {4, 99, 99}, 3)[0] <= 4);
}

TEST_CASE(
    "however slow the links, a stage has at most four more in flight for each border behind it") {
  CHECK(Choose(Chain({1, 1, 1}, {3, 3, 3}, 30), {999, 999, 999}, 3)[0] <= 3 + 2 * 4);
  CHECK(Choose(Chain({1, 1}, {3, 3}, 3), {999, 999}, 3) == Depths{4, 1});
}

TEST_CASE("no step of one stage, or of all before a border, from the chosen depths is faster") {
  // Two replicas behind a single one: what helps depends on whether rounds meet.
  for (const double transfer : {0.2, 0.9, 1.7}) {
    const HandMade made = Chain({1, 1, 2, 1}, {11, 12, 24, 13}, transfer);
    const Depths most(4, 999);
    const Depths chosen = Choose(made, most, 13, 100'000'000);
    const auto period = [&](const Depths& depths) {
      PipelineShape shape = made.shape;
      for (size_t s = 0; s < depths.size(); ++s) shape.stages[s].in_flight = depths[s];
      return Simulate("1f1b", shape, made.pipeline).minibatch_ms;
    };
    CAPTURE(transfer, chosen);
    const double best = period(chosen);
    CHECK(best <= 1.001 * period({5, 4, 2, 1}));
    for (size_t last = 0; last < 3; ++last) {
      for (size_t first : {size_t{0}, last}) {
        Depths deeper = chosen;
        for (size_t s = first; s <= last; ++s) ++deeper[s];
        if ((deeper[last] - 1) * made.shape.stages[last].replicas >
            (last > 0 ? (deeper[last - 1] - 1) * made.shape.stages[last - 1].replicas : 999)) {
          continue;
        }
        CHECK(period(deeper) >= 0.995 * best);
      }
    }
  }
}

TEST_CASE("with no work left the depths are the default's") {
  const HandMade made = Chain({1, 1}, {3, 3}, 0.3);
  CHECK(Choose(made, {99, 99}, 3, 0) == Depths{2, 1});
}

}  // namespace
}  // namespace pd
