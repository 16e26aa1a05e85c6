#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "optim/optim.h"

namespace pd {

/// Everything that a run of pd-train can be told besides its plan: config/1 and the command line
/// have the same keys (flags with - for _). Defaults here.
struct TrainConfig {
  std::string data;  ///< A directory, or "synthetic".
  /// An object; its keys depend on the format of the data (lib/data).
  JsonView data_options = JsonView::Parse("{}", "data_options");
  int64_t epochs = 1;
  int64_t minibatches = 0;  ///< Of each epoch; 0: all.
  int64_t eval_every =
      0;  ///< Minibatches between evaluations inside an epoch; 0: at epoch ends only.
  int64_t eval_minibatches = 0;  ///< Of each evaluation, spread over the test samples; 0: all.
  double target_accuracy = 0;    ///< 0: none.
  double target_perplexity = 0;  ///< 0: none. With both, the first that is reached ends the run.
  double lr = 0.01, momentum = 0.9, weight_decay = 0;
  LrSchedule lr_schedule;
  std::string lr_scaling = "none";  ///< "linear": each stage's rate times its replicas.
  std::string schedule;             ///< Empty: the plan's.
  std::string device = "auto";
  bool tf32 = false;  ///< On a GPU: products may be rounded to TF32.
  int64_t threads = 1;
  int64_t seed = 1;
  std::string metrics;  ///< File; empty: standard output.
  int64_t log_every = 10;
  std::string trace, checkpoint;  ///< Empty: none.
  std::string progress = "auto";
  double stall_timeout = 300;  ///< Seconds that a worker waits for another before the run fails.

  /// Takes over the keys of a config/1 document. Refuses unknown keys and values out of range.
  void Merge(const JsonView& json);
  /// Sets one key from the text of a command-line flag; `flag` names it in a complaint.
  void Set(std::string_view key, std::string_view text, std::string_view flag);
  /// Refuses what cannot be together or is not available; called when all is merged.
  /// `needs_data`: the run reads samples (--check does not).
  void Validate(bool needs_data = true) const;
  /// config/1 with every key: what the run uses.
  std::string ToJson() const;
};

}  // namespace pd
