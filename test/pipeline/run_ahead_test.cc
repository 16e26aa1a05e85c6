#include <atomic>
#include <chrono>
#include <thread>

#include "pipeline/pipelined.h"
#include "pipeline/session.h"
#include "support/catch.h"

namespace pd {
namespace {

// No gradient comes back to the first stage, and all messages are small enough to leave at once.
TrainingCase Unthrottled() {
  TrainingCase c;
  c.model = R"({"format":"pipedream.model/1","name":"unthrottled",
    "inputs":[{"name":"image","shape":[2,8,8]},{"name":"label","shape":[],"dtype":"i32"}],
    "layers":[{"name":"flat","type":"flatten","inputs":["image"]},
      {"name":"fc","type":"linear","out_features":4},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})";
  c.stages = {{"flat"}, {"fc", "loss"}};
  c.replicas = {1, 1};
  c.segments = {30 * 4};
  return c;
}

TEST_CASE("a stage that no gradient throttles stays within the minibatches in flight") {
  const TrainingCase c = Unthrottled();
  const RandomData data = OracleData();
  const PipelineShape shape = ShapeOf(c);
  constexpr int64_t kMinibatches = 30;
  std::atomic<int64_t> done[2] = {};
  int64_t ahead = 0;
  OnThreads(2, [&](Transport& transport) {
    Session session(c, transport);
    const int me = transport.rank();
    const auto actions =
        static_cast<int64_t>(MakeActions("1f1b", shape, me, 0, kMinibatches).size());
    int64_t calls = 0;
    session.Train(data, kMinibatches * c.batch_size, [&] {
      done[me] = ++calls * kMinibatches / actions;
      if (me == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the slower one
      ahead = std::max(ahead, done[0] - done[1]);
    });
  });
  CHECK(ahead >= 1);
  CHECK(ahead <= shape.stages[0].in_flight + shape.stages[1].in_flight + 2);
}

TEST_CASE("an unthrottled stage trains the same, whatever the transport holds back") {
  const RandomData data = OracleData();
  for (const size_t eager_bytes : {size_t{0}, size_t{4096}}) {
    CHECK(Difference(TrainOnThreads(Unthrottled(), data, eager_bytes),
                     TrainSerially(Unthrottled(), data)) == "");
  }
}

}  // namespace
}  // namespace pd
