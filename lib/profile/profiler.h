#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/host.h"
#include "model/model.h"
#include "plan/plan.h"

namespace pd {

/// How far a measurement is: steps of training made, warm-up included, in this piece of the model.
struct ProfileProgress {
  int64_t step = 0, steps = 0;
  size_t piece = 0, pieces = 0;
};

struct ProfileOptions {
  int64_t batch_size = 64;
  int64_t minibatches = 50;                ///< Measured ones.
  int64_t warmup = 5;                      ///< Steps before, of which no time is kept.
  uint64_t seed = 1;                       ///< Of weights and data.
  int64_t memory_bytes = INT64_MAX;        ///< A model that needs more is measured in pieces.
  std::function<int64_t()> clock = NowNs;  ///< Nanoseconds; a device has clocks of its own.
  std::function<int64_t()> cpu_clock = ThreadCpuNs;      ///< Nanoseconds that this thread computed.
  std::function<void(const ProfileProgress&)> progress;  ///< Told after each step; may be empty.
};

struct ProfileResult {
  Profile profile;
  int64_t warmup = 0;
  double layers_ms = 0;  ///< Sum over the layers: forward, backward and update.
  /// Passes without inner timers, made in turn with the timed ones; with pieces, the sums over
  /// them.
  double untimed_ms = 0, untimed_p90_ms = 0;
  /// Share of the untimed passes' time in which this thread did not have its core; 0 on a device.
  double lost_share = 0;
  /// Layers [begin, end) that were measured together: one piece when the whole model fits.
  struct Piece {
    int begin = 0, end = 0;
  };
  std::vector<Piece> pieces;
  int64_t memory_bytes = 0;  ///< That the largest piece took.
};

/// Measures what each layer of a model costs as part of a training step on `backend`: medians over
/// the measured minibatches. The whole model runs as one stage, as a worker would run it, with a
/// timer around each layer; each such step is followed by one without timers, which tells what the
/// timers cost. A model that needs more memory than options.memory_bytes is measured in pieces of
/// consecutive layers; profile.whole_ms is absent then.
///
/// Times: on a device those of its own clocks, between marks around each layer. A layer's
/// backward_ms is both gradients and the sums over its consumers' contributions; update_ms is SGD
/// with momentum over its parameters. activation_bytes and parameter_bytes are those of dense
/// tensors, which is what is sent; stash_bytes is what the backend stores. Throws kInvalidInput
/// when a layer alone needs more memory.
ProfileResult MeasureProfile(const Model& model, Backend& backend, const ProfileOptions& options);

}  // namespace pd
