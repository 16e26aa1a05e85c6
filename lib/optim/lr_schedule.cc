#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "optim/optim.h"

namespace pd {
namespace {

constexpr double kMaxEpochs = 1e6;
// Epochs arrive as quotients (minibatch / minibatches of an epoch), so a boundary may be missed by
// rounding: 0.3 / 0.1 is below 3. The slack is far below one minibatch.
constexpr double kSlack = 1e-9;

void ReadNumber(const JsonView& json, std::string_view key, double min, double max, double& out) {
  if (const auto value = json.Find(key)) out = value->Number(min, max);
}

}  // namespace

LrSchedule LrSchedule::Read(const JsonView& json) {
  const std::vector<std::string_view> types = {"constant", "step", "polynomial"};
  LrSchedule schedule;
  const JsonView type = json.At("type");
  schedule.type = type.String();
  if (std::find(types.begin(), types.end(), schedule.type) == types.end()) {
    const std::string near = Nearest(schedule.type, types);
    type.Fail("\"constant\", \"step\" or \"polynomial\"",
              near.empty() ? fmt::format("\"{}\"", schedule.type)
                           : fmt::format("\"{}\"; did you mean \"{}\"?", schedule.type, near));
  }
  if (schedule.type == "step") {
    json.CheckKeys({"type", "warmup_epochs", "epochs", "gamma"});
    ReadNumber(json, "epochs", 1e-6, kMaxEpochs, schedule.step_epochs);
    ReadNumber(json, "gamma", 0, 1, schedule.gamma);
  } else if (schedule.type == "polynomial") {
    json.CheckKeys({"type", "warmup_epochs", "power", "end"});
    ReadNumber(json, "power", 0, 100, schedule.power);
    ReadNumber(json, "end", 0, 1e6, schedule.end);
  } else {
    json.CheckKeys({"type", "warmup_epochs"});
  }
  ReadNumber(json, "warmup_epochs", 0, kMaxEpochs, schedule.warmup_epochs);
  return schedule;
}

double LrSchedule::At(double base, double epoch, double total_epochs,
                      double minibatch_epochs) const {
  if (epoch < warmup_epochs - kSlack) {
    return base * std::min(1.0, (epoch + minibatch_epochs) / warmup_epochs);
  }
  if (type == "step") return base * std::pow(gamma, std::floor(epoch / step_epochs + kSlack));
  if (type == "polynomial") {
    PD_CHECK(total_epochs > 0, "{} epochs", total_epochs);
    const double progress = std::clamp(epoch / total_epochs, 0.0, 1.0);
    return end + (base - end) * std::pow(1 - progress, power);
  }
  PD_CHECK(type == "constant", "learning-rate schedule \"{}\"", type);
  return base;
}

}  // namespace pd
