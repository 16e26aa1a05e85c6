#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace pd {

/// The learning rate as a function of training's progress, measured in epochs from 0 (fractions
/// count minibatches), so that one config means the same on every plan.
///   constant                    base
///   step        epochs, gamma   base · gamma^⌊epoch / epochs⌋
///   polynomial  power, end      end + (base - end) · (1 - epoch / total epochs)^power
/// Each with warmup_epochs: while epoch < warmup_epochs, linear from base / (minibatches of the
/// warm-up) up to base, in its last minibatch. The warm-up shifts nothing: after it the formula
/// holds as written.
struct LrSchedule {
  std::string type = "constant";
  double step_epochs = 30, gamma = 0.1;
  double power = 1, end = 0;
  double warmup_epochs = 0;

  /// Reads {"type": …}; only "type" is required. Refuses unknown types and keys (kInvalidInput),
  /// also a key of another type.
  static LrSchedule Read(const JsonView& json);

  /// The rate of the minibatch that starts at `epoch` and is `minibatch_epochs` long (1 /
  /// minibatches of an epoch), in a training of `total_epochs`.
  double At(double base, double epoch, double total_epochs, double minibatch_epochs) const;
};

}  // namespace pd
