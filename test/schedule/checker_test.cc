#include "schedule/checker.h"

#include <utility>

#include "schedule/shapes.h"
#include "support/catch.h"

namespace pd {
namespace {

using K = ActionKind;
constexpr int64_t kMinibatches = 11;

std::vector<PipelineShape> MutatedShapes() {
  return {ShapeOf({1, 1, 1}), ShapeOf({2, 1}), ShapeOf({1, 2}), ShapeOf({2, 3, 1}), ShapeOf({3})};
}

// Calls mutate(lists, list, index) for each action of each list on a fresh copy, and wants each
// refused.
template <typename Mutate>
void EveryMutationIsCaught(const Mutate& mutate) {
  for (const PipelineShape& shape : MutatedShapes()) {
    const ActionLists good = MakeAllActions("1f1b", shape, kMinibatches);
    REQUIRE(CheckActions(shape, good, kMinibatches) == "");
    for (size_t s = 0; s < good.size(); ++s) {
      for (size_t r = 0; r < good[s].size(); ++r) {
        for (size_t i = 0; i < good[s][r].size(); ++i) {
          ActionLists lists = good;
          if (!mutate(lists[s][r], i)) continue;
          INFO("shape" << TextOf(shape) << ", stage " << s << " replica " << r << " action " << i);
          REQUIRE(CheckActions(shape, lists, kMinibatches) != "");
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("checker: an action left out is caught") {
  EveryMutationIsCaught([](std::vector<Action>& list, size_t i) {
    list.erase(list.begin() + static_cast<ptrdiff_t>(i));
    return true;
  });
}

TEST_CASE("checker: an action done twice is caught") {
  EveryMutationIsCaught([](std::vector<Action>& list, size_t i) {
    list.insert(list.begin() + static_cast<ptrdiff_t>(i), list[i]);
    return true;
  });
}

TEST_CASE("checker: neighbours swapped are caught") {
  EveryMutationIsCaught([](std::vector<Action>& list, size_t i) {
    if (i + 1 == list.size()) return false;
    std::swap(list[i], list[i + 1]);
    return true;
  });
}

TEST_CASE("checker: any two actions swapped are caught") {
  for (size_t distance = 2; distance < 12; ++distance) {
    EveryMutationIsCaught([distance](std::vector<Action>& list, size_t i) {
      if (i + distance >= list.size()) return false;
      std::swap(list[i], list[i + distance]);
      return true;
    });
  }
}

TEST_CASE("checker: a version one too old or too new is caught") {
  for (const int64_t change : {-1, 1}) {
    EveryMutationIsCaught([change](std::vector<Action>& list, size_t i) {
      list[i].version += change;
      return true;
    });
  }
}

TEST_CASE("checker: a wrong minibatch is caught") {
  for (const int64_t change : {-3, -2, -1, 1, 2, 3, 100}) {
    EveryMutationIsCaught([change](std::vector<Action>& list, size_t i) {
      list[i].minibatch += change;
      return true;
    });
  }
}

TEST_CASE("checker: a deeper list than the shape allows is caught") {
  const PipelineShape deep = ShapeOf({1, 1}, {3, 1});
  CHECK_THAT(CheckActions(ShapeOf({1, 1}), MakeAllActions("1f1b", deep, 8), 8),
             ContainsSubstring("stage 0 replica 0"));
}

TEST_CASE("checker: a deadlock names every worker that waits") {
  // A stage of depth 3 behind one of depth 1: it waits for inputs, and the first stage for
  // gradients.
  const PipelineShape shape = ShapeOf({1, 1}, {1, 3});
  ActionLists lists(2);
  lists[0].push_back(MakeActions("1f1b", ShapeOf({1, 1}, {1, 1}), 0, 0, 4));
  lists[1].push_back(MakeActions("1f1b", ShapeOf({1, 1}, {3, 3}), 1, 0, 4));
  CHECK(CheckActions(shape, lists, 4) ==
        "deadlock: stage 0 replica 0: receive gradients of minibatch 0 on version 0; "
        "stage 1 replica 0: receive inputs of minibatch 1 on version 0");
}

TEST_CASE("checker: minibatches that overtake each other between two workers are caught") {
  // Stage 0 sends 1 before 0; both lists alone would be lawful with another numbering.
  const PipelineShape shape = ShapeOf({1, 1}, {2, 1});
  ActionLists lists = MakeAllActions("1f1b", shape, 2);
  std::swap_ranges(lists[0][0].begin(), lists[0][0].begin() + 3, lists[0][0].begin() + 3);
  CHECK_THAT(CheckActions(shape, lists, 2),
             ContainsSubstring("stage 1 replica 0: receive inputs of minibatch 0"));
}

}  // namespace pd
