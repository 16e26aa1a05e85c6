#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "schedule/schedule.h"
#include "stage/program.h"

namespace pd {

/// What every worker of a run agrees on.
struct PipelineSpec {
  const Model* model = nullptr;
  const Cut* cut = nullptr;
  PipelineShape shape;
  std::vector<std::vector<int>> ranks;  ///< ranks[s][i]: rank of replica i of stage s.
  int machine_ranks = 1;                ///< Consecutive ranks that stand on one machine.
  std::string schedule = "1f1b";
  int64_t batch_size = 0;  ///< Of one minibatch.
  std::vector<int64_t>
      short_batches;  ///< Other sizes that occur: last minibatches of an epoch or evaluation.
  uint64_t seed = 1;
  double momentum = 0.9, weight_decay = 0;
  int metrics_rank = 0;  ///< Rank that is told the loss of each minibatch.
  /// Border messages go from and to the memory of devices, with headers in messages of their own:
  /// where every rank's transport takes such memory. Else they go through the host's.
  bool direct_messages = false;
  /// For each stage: does it keep only its inputs and outputs of a minibatch, and run the forward
  /// pass again before the backward pass? Empty: none does.
  std::vector<bool> recompute;
};

/// Consecutive layers of a stage whose gradients are reduced and applied together.
struct WeightBucket {
  size_t begin = 0, end = 0;  ///< Bytes in the weight block.
  int first_layer = 0;        ///< In the stage: the bucket is complete when its gradient is.
};

/// Inputs are received this many minibatches ahead of those in flight; gradients, and gradients to
/// be sent, have this many buffers.
inline constexpr int kReceiveAhead = 2;
inline constexpr int kGradientBuffers = 2;

/// This many minibatches may wait for their losses to be reported.
inline constexpr int kMetricsAhead = 64;

/// Bytes that one worker takes before the first minibatch.
struct WorkerMemory {
  size_t weights = 0;      ///< All versions, and running statistics.
  size_t gradients = 0;    ///< Of one minibatch.
  size_t optimizer = 0;    ///< Momentum.
  size_t activations = 0;  ///< Arenas of the minibatches in flight.
  size_t scratch = 0;
  size_t messages = 0;  ///< Inputs, outputs, and gradients received or sent.
  /// In the host's memory: for sums over replicas and for losses; with a device also the host's
  /// side of all that moves between the two.
  size_t staging = 0;
  size_t total() const {
    return weights + gradients + optimizer + activations + scratch + messages + staging;
  }
  /// Of the backend's memory: all, or what lies on the device.
  size_t of_backend() const { return on_device ? total() - staging : total(); }
  bool on_device = false;
};

/// A stage planned for every minibatch size that occurs. Nothing is allocated yet.
class StageSetup {
 public:
  StageSetup(const PipelineSpec& spec, Backend& backend, int stage);

  const WeightLayout& weights() const { return *weights_; }
  /// The program for minibatches of `samples`; PD_CHECKs that the size was announced.
  StageProgram& program(int64_t samples) const;
  const StageProgram& full() const { return *programs_[0]; }
  size_t arena_bytes() const;
  size_t scratch_bytes() const;
  /// Border messages, as indices into the cut's.
  const std::vector<int>& gradients_in() const { return gradients_in_; }
  const std::vector<int>& gradients_out() const { return gradients_out_; }
  const std::vector<int>& outputs() const { return outputs_; }
  /// Buffers for the stage's inputs: one a minibatch in flight, and those received ahead.
  int input_slots() const { return input_slots_; }
  /// All weights, the last layers' first: in the order in which their gradients come.
  const std::vector<WeightBucket>& buckets() const { return buckets_; }
  /// The most that replicas sum at once: a bucket, or the running statistics.
  size_t largest_sum_bytes() const;
  /// Bytes of one message with its header, at the full size.
  size_t MessageBytes(TensorId tensor) const;
  /// Of each input, and of each of these messages of the cut.
  std::vector<size_t> InputBytes() const;
  std::vector<size_t> OutputBytes() const;
  std::vector<size_t> MessageBytes(const std::vector<int>& messages) const;
  /// Arenas that a worker needs: one a minibatch in flight, or one where nothing but inputs and
  /// outputs is kept.
  int arenas() const { return recomputes_ ? 1 : in_flight_; }
  bool recomputes() const { return recomputes_; }
  /// What one loss tells of a minibatch, in a report.
  size_t loss_bytes() const;

  WorkerMemory Memory(const PipelineSpec& spec) const;

 private:
  void MakeBuckets(int layers);

  const Model* model_;
  const Cut* cut_;
  int stage_, in_flight_, input_slots_;
  bool on_device_, recomputes_;
  std::vector<std::unique_ptr<ModelPlan>> plans_;
  std::unique_ptr<WeightLayout> weights_;
  std::vector<std::unique_ptr<StageProgram>> programs_;
  std::vector<int> gradients_in_, gradients_out_, outputs_;
  std::vector<WeightBucket> buckets_;
};

}  // namespace pd
