#include "base/error.h"
#include "schedule/checker.h"
#include "schedule/shapes.h"
#include "support/catch.h"

namespace pd {

TEST_CASE("schedules: an unknown name is refused with the list of known ones") {
  try {
    MakeActions("1f2b", ShapeOf({1, 1}), 0, 0, 3);
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInvalidInput);
    for (const auto name : ScheduleNames()) {
      CHECK_THAT(error.what(), ContainsSubstring(std::string(name)));
    }
    CHECK_THAT(error.what(), ContainsSubstring("1f2b"));
  }
}

TEST_CASE("schedules: every listed name makes lists") {
  for (const auto name : ScheduleNames()) {
    CHECK_FALSE(MakeActions(name, ShapeOf({2, 1}), 0, 0, 3).empty());
  }
}

TEST_CASE(
    "evaluation: each minibatch runs forward once, on its replica, even over blocking channels") {
  CheckOptions options;
  options.evaluation = true;
  options.channel_capacity = 0;
  for (const PipelineShape& shape : DefaultShapes()) {
    for (int64_t n = 0; n <= 40; ++n) {
      INFO("shape" << TextOf(shape) << ", " << n << " minibatches");
      REQUIRE(CheckActions(shape, MakeAllEvaluationActions(shape, n), n, options) == "");
    }
  }
}

}  // namespace pd
