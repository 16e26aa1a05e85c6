#include "schedule/one_f_one_b.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "schedule/checker.h"
#include "schedule/shapes.h"
#include "support/catch.h"

namespace pd {
namespace {

int64_t VersionOfForward(const std::vector<Action>& list, int64_t minibatch) {
  for (const Action& action : list) {
    if (action.kind == ActionKind::kForward && action.minibatch == minibatch) return action.version;
  }
  return -1;
}

// "F0 F1 B0 U1": passes by minibatch, updates by the version they write.
std::string Short(const std::vector<Action>& list) {
  std::string text;
  for (const Action& action : list) {
    if (action.kind == ActionKind::kForward) text += fmt::format(" F{}", action.minibatch);
    if (action.kind == ActionKind::kBackward) text += fmt::format(" B{}", action.minibatch);
    if (action.kind == ActionKind::kUpdate) text += fmt::format(" U{}", action.version);
  }
  return text.empty() ? text : text.substr(1);
}

}  // namespace

TEST_CASE("1f1b: the default depth of the input stage is the paper's NOAM") {
  // arXiv 1806.03377 §3.2, ⌈machines / machines of the input stage⌉, on the configurations of its
  // Table 1.
  CHECK(DefaultInFlight(ShapeOf({1, 1, 1, 1}), 0) == 4);
  CHECK(DefaultInFlight(ShapeOf({15, 1}), 0) == 2);
  CHECK(DefaultInFlight(ShapeOf({7, 1}), 0) == 2);
  CHECK(DefaultInFlight(ShapeOf({2, 1, 1}), 0) == 2);
  CHECK(DefaultInFlight(ShapeOf({9, 5, 1, 1}), 0) == 2);
  CHECK(DefaultInFlight(ShapeOf({8}), 0) == 1);
  CHECK(DefaultInFlight(ShapeOf({1, 3}), 0) == 4);
  for (int s = 0; s < 4; ++s) CHECK(DefaultInFlight(ShapeOf({1, 1, 1, 1}), s) == 4 - s);
}

TEST_CASE("1f1b: minibatch 5 of the paper's four-stage example sees versions 1, 2, 3, 4") {
  const PipelineShape shape = ShapeOf({1, 1, 1, 1});
  for (int s = 0; s < 4; ++s) {
    CHECK(VersionOfForward(MakeActions("1f1b", shape, s, 0, 10), 5 - 1) == s + 1);
  }
}

TEST_CASE("1f1b: versions of straight pipelines are the paper's max(0, i - (n - s + 1))") {
  for (int n = 1; n <= 6; ++n) {
    const PipelineShape shape = ShapeOf(std::vector<int>(n, 1));
    for (int s = 1; s <= n; ++s) {
      const auto list = MakeActions("1f1b", shape, s - 1, 0, 20);
      for (int i = 1; i <= 20; ++i) {
        CHECK(VersionOfForward(list, i - 1) == std::max(0, i - (n - s + 1)));
      }
    }
  }
}

TEST_CASE("1f1b: a replica starts D - 1 forwards, then alternates, then ends with its backwards") {
  CHECK(Short(MakeActions("1f1b", ShapeOf({1, 1, 1}), 0, 0, 5)) ==
        "F0 F1 F2 B0 U1 F3 B1 U2 F4 B2 U3 B3 U4 B4 U5");
  CHECK(Short(MakeActions("1f1b", ShapeOf({1, 1, 1}), 2, 0, 3)) == "F0 B0 U1 F1 B1 U2 F2 B2 U3");
  CHECK(Short(MakeActions("1f1b", ShapeOf({1, 1, 1}), 0, 0, 1)) == "F0 B0 U1");
  // 2-1 with 5 minibatches: the last round has one minibatch, and both replicas update.
  CHECK(Short(MakeActions("1f1b", ShapeOf({2, 1}), 0, 0, 5)) == "F0 F2 B0 U1 F4 B2 U2 B4 U3");
  CHECK(Short(MakeActions("1f1b", ShapeOf({2, 1}), 0, 1, 5)) == "F1 F3 B1 U1 B3 U2 U3");
  // Seven replicas and two minibatches: those without one take part in the round all the same.
  CHECK(Short(MakeActions("1f1b", ShapeOf({7, 1}), 0, 4, 2)) == "U1");
  CHECK(Short(MakeActions("1f1b", ShapeOf({3}), 0, 2, 6)) == "F2 B2 U1 F5 B5 U2");
}

TEST_CASE("1f1b: receives and sends stand beside their passes") {
  using K = ActionKind;
  const PipelineShape shape = ShapeOf({1, 1, 1});
  CHECK(MakeActions("1f1b", shape, 0, 0, 1) == std::vector<Action>{{K::kReceiveInputs, 0, 0},
                                                                   {K::kForward, 0, 0},
                                                                   {K::kSendOutputs, 0, 0},
                                                                   {K::kReceiveGradients, 0, 0},
                                                                   {K::kBackward, 0, 0},
                                                                   {K::kUpdate, 0, 1}});
  CHECK(MakeActions("1f1b", shape, 1, 0, 1) == std::vector<Action>{{K::kReceiveInputs, 0, 0},
                                                                   {K::kForward, 0, 0},
                                                                   {K::kSendOutputs, 0, 0},
                                                                   {K::kReceiveGradients, 0, 0},
                                                                   {K::kBackward, 0, 0},
                                                                   {K::kSendGradients, 0, 0},
                                                                   {K::kUpdate, 0, 1}});
  CHECK(MakeActions("1f1b", shape, 2, 0, 1) == std::vector<Action>{{K::kReceiveInputs, 0, 0},
                                                                   {K::kForward, 0, 0},
                                                                   {K::kBackward, 0, 0},
                                                                   {K::kSendGradients, 0, 0},
                                                                   {K::kUpdate, 0, 1}});
}

TEST_CASE("1f1b: every shape passes the checker with 0 to 40 minibatches") {
  std::vector<PipelineShape> shapes = DefaultShapes();
  for (const PipelineShape& shape : RaisedShapes()) shapes.push_back(shape);
  for (const PipelineShape& shape : shapes) {
    for (int64_t n = 0; n <= 40; ++n) {
      INFO("shape" << TextOf(shape) << ", " << n << " minibatches");
      const ActionLists lists = MakeAllActions("1f1b", shape, n);
      REQUIRE(CheckActions(shape, lists, n) == "");
      if (n == 0) REQUIRE(lists[0][0].empty());
    }
  }
}

TEST_CASE("1f1b: a channel that holds as many messages as the sender has in flight is enough") {
  for (const auto& shapes : {DefaultShapes(), RaisedShapes()}) {
    for (const PipelineShape& shape : shapes) {
      CheckOptions options;
      options.channel_capacity = 0;
      for (const auto& stage : shape.stages) {
        options.channel_capacity = std::max<int64_t>(options.channel_capacity, stage.in_flight);
      }
      INFO("shape" << TextOf(shape));
      REQUIRE(CheckActions(shape, MakeAllActions("1f1b", shape, 40), 40, options) == "");
    }
  }
}

TEST_CASE(
    "1f1b: depths at which two stages would wait for each other are refused, and only those") {
  // A stage's list depends on its own depth alone, so the lists of a refused shape can be taken
  // from shapes that are allowed, and executed.
  for (int r0 = 1; r0 <= 3; ++r0) {
    for (int r1 = 1; r1 <= 3; ++r1) {
      for (int d0 = 1; d0 <= 5; ++d0) {
        for (int d1 = 1; d1 <= 5; ++d1) {
          // Each stage's list of a pipeline in which it is allowed: only its own depth matters to
          // it.
          const PipelineShape shape = ShapeOf({r0, r1}, {d0, d1});
          ActionLists lists(2);
          for (int r = 0; r < r0; ++r) {
            lists[0].push_back(MakeActions("1f1b", ShapeOf({r0, r1}, {d0, 1}), 0, r, 60));
          }
          for (int r = 0; r < r1; ++r) {
            lists[1].push_back(MakeActions("1f1b", ShapeOf({r0, r1}, {50, d1}), 1, r, 60));
          }
          const bool runs = CheckActions(shape, lists, 60).empty();
          INFO("shape" << TextOf(shape));
          if (runs) {
            REQUIRE_NOTHROW(MakeActions("1f1b", shape, 0, 0, 60));
          } else {
            REQUIRE_THROWS_WITH(MakeActions("1f1b", shape, 0, 0, 60),
                                ContainsSubstring("stage 1 would wait for ever"));
          }
        }
      }
    }
  }
}

TEST_CASE("1f1b: sends that wait for their receive lock up a two-stage pipeline") {
  // Why the runtime's sends must be asynchronous.
  CheckOptions rendezvous;
  rendezvous.channel_capacity = 0;
  const PipelineShape two = ShapeOf({1, 1});
  CHECK_THAT(CheckActions(two, MakeAllActions("1f1b", two, 4), 4, rendezvous),
             ContainsSubstring("deadlock: stage 0 replica 0: send outputs of minibatch 1"));
  const PipelineShape data_parallel = ShapeOf({4});
  CHECK(CheckActions(data_parallel, MakeAllActions("1f1b", data_parallel, 9), 9, rendezvous) == "");
}

}  // namespace pd
