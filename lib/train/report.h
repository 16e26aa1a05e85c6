#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pipeline/stage_setup.h"
#include "plan/plan.h"
#include "train/config.h"

namespace pd {

/// What one rank tells of itself at the start.
struct RankInfo {
  int rank = 0, stage = -1, replica = 0;
  std::string host, device;
  std::string machine;       ///< MachineId: virtual hosts share one.
  std::string label;         ///< Of the device, for people.
  std::string device_id;     ///< Of a GPU: the same for one GPU's ranks.
  std::string instructions;  ///< Backend::instructions.
  std::string broken_cuda;   ///< AutoDevice::broken_cuda.
  std::string weights;       ///< Digest of how the stage's weights lie in memory.
  int threads = 1;
  int cores = 1, host_cores = 1;  ///< That the process may use; that the host has.
  int in_flight = 0;
  int64_t memory_bytes = 0;  ///< For training; on a GPU all that the backend takes of its memory.

  std::string Pack() const;
  static RankInfo Unpack(const std::string& text);
  std::string Role() const;  ///< "stage 0 replica 1", "idle"
};

/// What one rank did over the training segments (evaluation and saving left out).
struct RankTotals {
  int rank = 0, stage = -1;
  double compute_ms = 0, idle_ms = 0;
  int64_t bytes_sent = 0, bytes_received = 0;
  /// Of the process, or on a GPU what the backend has of its memory: beside the memory for
  /// training, and at most.
  int64_t base_memory_bytes = 0, peak_memory_bytes = 0;

  std::string Pack() const;
  static RankTotals Unpack(const std::string& text);
};

/// Of the training segments of a whole run.
struct MeasuredRun {
  int64_t minibatches = 0;
  double minibatch_ms = 0;  ///< Filling and draining of the pipeline included.
  double steady_ms = 0;     ///< Between minibatches in the middle of segments; 0: too short for it.
  bool timed = false;       ///< On device timed, whose memory tells nothing of training's.
};

/// Tables for people, without a final newline.
std::string StartTable(const Plan& plan, const std::vector<RankInfo>& ranks);
/// Measured beside predicted (where the plan predicts), for each minibatch of the pipeline.
std::string EndTable(const std::vector<RankTotals>& ranks, const MeasuredRun& run,
                     const Predicted* predicted);
/// The `workers` of the end event, as JSON text.
std::string WorkersJson(const std::vector<RankTotals>& ranks, const MeasuredRun& run,
                        const Predicted* predicted);
/// What to say of threads and cores: more threads than cores, of a rank or a host, which slows
/// training down, and cores that idle. Empty when each core has one thread.
std::vector<std::string> ThreadWarnings(const std::vector<RankInfo>& ranks);

/// "conv1 … pool2 (6)"
std::string LayerSpan(const StagePlan& stage);

/// The progress line of rank 0 on standard error.
class Progress {
 public:
  /// mode: auto (only on a terminal), always, never.
  explicit Progress(std::string_view mode);
  void Show(int64_t epoch, int64_t epochs, int64_t minibatch, int64_t minibatches, double loss,
            double accuracy, double samples_per_s, double eta_s);
  /// Takes the line away, so that other text can follow.
  void Clear();

 private:
  bool on_, terminal_;
  bool shown_ = false;
  int64_t last_ns_ = 0;
};

}  // namespace pd
