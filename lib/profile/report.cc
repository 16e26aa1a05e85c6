#include "profile/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"

namespace pd {
namespace {

constexpr double kLargestGap = 0.10;
constexpr double kLargestSpread = 1.3;
constexpr double kLargestLoss = 0.05;

std::string Row(const std::string& name, size_t width, const LayerCost& cost) {
  return fmt::format("{}{}  {:>9.3f}  {:>9.3f}  {:>9.3f}  {:>10}  {:>10}  {:>10}\n", name,
                     std::string(width - DisplayWidth(name), ' '), cost.forward_ms,
                     cost.backward_ms, cost.update_ms.value_or(0),
                     FormatBytes(static_cast<double>(cost.activation_bytes)),
                     FormatBytes(static_cast<double>(cost.stash_bytes.value_or(0))),
                     FormatBytes(static_cast<double>(cost.parameter_bytes)));
}

}  // namespace

std::string FormatProfile(const ProfileResult& result) {
  const Profile& profile = result.profile;
  size_t width = DisplayWidth("layer");
  LayerCost total;
  total.update_ms = 0;
  total.stash_bytes = 0;
  for (const LayerCost& layer : profile.layers) {
    width = std::max(width, DisplayWidth(Printable(layer.name)));
    total.forward_ms += layer.forward_ms;
    total.backward_ms += layer.backward_ms;
    *total.update_ms += layer.update_ms.value_or(0);
    total.activation_bytes += layer.activation_bytes;
    *total.stash_bytes += layer.stash_bytes.value_or(0);
    total.parameter_bytes += layer.parameter_bytes;
  }
  std::string out = fmt::format(
      "batch {}, medians of {} after {} to warm up; {}\n\n", profile.batch_size,
      profile.minibatches.value_or(0), result.warmup,
      profile.device
          ? fmt::format("{} ({}), {}, {}", profile.device->kind, profile.device->name,
                        Counted(profile.device->threads, "thread"), profile.device->libraries)
          : "device unknown");
  out += fmt::format("{:<{}}  {:>9}  {:>9}  {:>9}  {:>10}  {:>10}  {:>10}\n", "layer", width,
                     "forward", "backward", "update", "activation", "stash", "parameters");
  out += fmt::format("{:<{}}  {:>9}  {:>9}  {:>9}\n", "", width, "ms", "ms", "ms");
  for (const LayerCost& layer : profile.layers) out += Row(Printable(layer.name), width, layer);
  out += Row("total", width, total);
  out += fmt::format(
      "\nsum of the layers {:.3f} ms; {} without inner timers {:.3f} ms (p90 {:.3f} ms)\n",
      result.layers_ms, result.pieces.size() == 1 ? "a whole pass" : "passes of all pieces",
      result.untimed_ms, result.untimed_p90_ms);
  return out;
}

std::vector<std::string> ProfileWarnings(const ProfileResult& result) {
  std::vector<std::string> warnings;
  const double gap = result.layers_ms - result.untimed_ms;
  if (std::abs(gap) > kLargestGap * result.untimed_ms) {
    warnings.push_back(
        fmt::format("the sum of the layers, {:.3f} ms, differs by {:.0f} % from a pass without "
                    "inner timers, {:.3f} ms",
                    result.layers_ms, 100 * std::abs(gap) / result.untimed_ms, result.untimed_ms));
  }
  if (result.untimed_p90_ms > kLargestSpread * result.untimed_ms) {
    warnings.push_back(fmt::format(
        "this machine is noisy: a pass takes {:.3f} ms (median), but one in ten {:.3f} ms or more",
        result.untimed_ms, result.untimed_p90_ms));
  }
  if (result.lost_share > kLargestLoss) {
    warnings.push_back(
        fmt::format("this machine is busy: other programs had the core for {:.0f} % of the time, "
                    "which makes long layers look longer than short ones",
                    100 * result.lost_share));
  }
  return warnings;
}

}  // namespace pd
