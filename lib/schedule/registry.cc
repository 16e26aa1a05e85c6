#include <fmt/format.h>

#include "base/error.h"
#include "schedule/one_f_one_b.h"

namespace pd {
namespace {

struct Schedule {
  std::string_view name;
  std::vector<Action> (*make_actions)(const PipelineShape&, int stage, int replica,
                                      int64_t minibatches);
};

// A line a schedule.
constexpr Schedule kSchedules[] = {
    {"1f1b", OneFOneBActions},
};

}  // namespace

std::vector<Action> MakeActions(std::string_view name, const PipelineShape& shape, int stage,
                                int replica, int64_t minibatches) {
  for (const Schedule& schedule : kSchedules) {
    if (schedule.name == name) return schedule.make_actions(shape, stage, replica, minibatches);
  }
  Throw(ErrorCode::kInvalidInput, "schedule: expected one of {}, found \"{}\"",
        fmt::join(ScheduleNames(), ", "), name);
}

std::vector<std::string_view> ScheduleNames() {
  std::vector<std::string_view> names;
  for (const Schedule& schedule : kSchedules) names.push_back(schedule.name);
  return names;
}

}  // namespace pd
