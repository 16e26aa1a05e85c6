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

Depths Choose(const HandMade& made, const Depths& most, double bound_ms) {
  int64_t work = 1'000'000;
  return ChooseInFlight("1f1b", made.shape, made.pipeline, most, bound_ms, work);
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

TEST_CASE("with no work left the depths are the default's") {
  const HandMade made = Chain({1, 1}, {3, 3}, 0.3);
  int64_t work = 0;
  CHECK(ChooseInFlight("1f1b", made.shape, made.pipeline, {99, 99}, 3, work) == Depths{2, 1});
}

}  // namespace
}  // namespace pd
