#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "data/loader.h"
#include "pipeline/all_reduce.h"
#include "pipeline/comm.h"
#include "pipeline/message.h"
#include "pipeline/stage_setup.h"
#include "pipeline/trace.h"
#include "pipeline/versions.h"
#include "schedule/schedule.h"

namespace pd {

/// The minibatches between two drains of the pipeline.
struct Segment {
  bool training = true;
  int64_t samples =
      0;  ///< All minibatches have batch_size samples but the last, which may have fewer.
  int64_t first_number = 0;  ///< Number of its first minibatch over the whole run.
  Loader* loader =
      nullptr;  ///< Input stage: started for this replica's minibatches. Null elsewhere.
  /// Learning rate of the round whose first minibatch is `b` of the segment.
  std::function<double(int64_t b)> lr;
  /// Called between actions: rank 0 writes metrics there.
  std::function<void()> between_actions;
};

/// One replica of one stage, running its static list of actions on its backend. Owns weights,
/// gradients, optimizer state and all buffers, taken at construction; a segment allocates only its
/// list.
class Worker final : private StageObserver {
 public:
  /// `spec`, `backend` and `comm` outlive the worker.
  Worker(const PipelineSpec& spec, Backend& backend, Comm& comm, int stage, int replica);
  ~Worker() override;

  /// Runs one segment to its drain: all gradients applied, all replicas' running statistics
  /// averaged. Throws kInternal on a non-finite loss, kComm when a peer is gone.
  void Run(const Segment& segment);

  int stage() const { return stage_; }
  int replica() const { return replica_; }
  const StageSetup& setup() const { return setup_; }

  /// Dense copies of parameters, momentum and running statistics, in WeightLayout order.
  enum class Kind { kParameters, kMomentum, kState };
  void Export(Kind kind, size_t entry, void* dense) const;
  void Import(Kind kind, size_t entry, const void* dense);

  /// Inside actions so far: computing, and waiting for messages or for the loader.
  int64_t compute_ns() const { return compute_ns_; }
  int64_t idle_ns() const { return idle_ns_; }
  void SetTrace(Trace* trace) { trace_ = trace; }

 private:
  // Message buffers of one ring slot, one after another.
  struct Slot {
    Buffer memory;
    std::vector<std::byte*> payloads;
    std::unique_ptr<Ticket[]> tickets, acknowledgements;
  };
  void OutputReady(int output) override;
  void GradientReady(int index) override;
  void WeightGradientReady(int i) override;

  void MakeBuckets();
  Slot MakeSlot(const std::vector<TensorId>& tensors);
  void RunAction(const Action& action);
  void ReceiveInputs(int64_t b);
  void Forward(int64_t b, int64_t version);
  void ReceiveGradients(int64_t b);
  void Backward(int64_t b, int64_t version);
  void Update(int64_t first, int64_t version);
  void SetRoundWeights(int64_t first);
  void ReportLoss(const StageProgram& program, int64_t b);
  void PostInputs(int64_t k);
  void PostGradients(int64_t k);
  void WaitForSends();
  bool Acknowledges(const BorderMessage& message) const;
  int AcknowledgementTag(const BorderMessage& message) const;
  void AverageState();

  void CheckMessage(const std::byte* payload, const Ticket& ticket, const BorderMessage& message,
                    int64_t b) const;
  StageMemory MemoryOf(int64_t b, int64_t version);
  int64_t Local(int64_t b) const { return b / replicas_; }
  int64_t SamplesIn(int64_t b) const;
  int PeerOf(int stage, int64_t b) const;
  int64_t RunNumber(int64_t b) const { return segment_.first_number + b; }

  const PipelineSpec& spec_;
  Backend& backend_;
  Comm& comm_;
  int stage_, replica_, replicas_, in_flight_;
  StageSetup setup_;
  WeightVersions versions_;
  Buffer gradients_, momentum_, state_, scratch_;
  std::vector<Buffer> arenas_;
  std::vector<Slot> inputs_, gradients_in_, gradients_out_;
  std::vector<bool> throttled_;  // for each stage: do gradients come back to it?
  std::vector<int> input_tags_;  // of the message that brings each input, or -1: from the loader
  std::unique_ptr<Ticket[]> output_tickets_,
      output_acknowledgements_;        // an arena's messages side by side
  std::deque<ReduceJob> jobs_;         // one a bucket
  std::vector<int> bucket_ending_at_;  // bucket whose first layer this is, or -1
  std::unique_ptr<AllReducer> reducer_;
  ReduceJob state_job_;
  std::vector<MinibatchMetrics> metrics_;
  std::unique_ptr<Ticket[]> metrics_tickets_;

  // The segment under way.
  Segment segment_;
  int64_t segment_index_ = 0, minibatches_ = 0, local_minibatches_ = 0;
  int64_t current_ = 0;  // minibatch that the observer's calls are about
  std::byte* current_arena_ = nullptr;
  const StageProgram* current_program_ = nullptr;
  int64_t reports_ = 0;
  int64_t compute_ns_ = 0, idle_ns_ = 0;
  Trace* trace_ = nullptr;
};

}  // namespace pd
