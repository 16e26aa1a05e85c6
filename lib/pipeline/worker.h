#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "data/loader.h"
#include "pipeline/action_clock.h"
#include "pipeline/all_reduce.h"
#include "pipeline/comm.h"
#include "pipeline/message.h"
#include "pipeline/stage_setup.h"
#include "pipeline/staging.h"
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
/// list. Where the backend's calls only queue work, the worker queues ahead of the device, and
/// waits only for messages and for what is far behind.
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
  /// On a device, compute is its time in kernels, and idle its time between actions.
  int64_t compute_ns() const { return clock_.compute_ns(); }
  int64_t idle_ns() const { return clock_.idle_ns(); }
  void SetTrace(Trace* trace) { clock_.SetTrace(trace); }

 private:
  struct Arena {
    Buffer memory;
    std::unique_ptr<Mark> losses_reported;  // kDownload: the losses in it are on the host
  };
  // Sums what a loss said of a minibatch, once that is on the host, and sends it where it is the
  // main one.
  class LossReport final : public CommOperation {
   public:
    void Done(size_t bytes) override;
    Worker* worker = nullptr;
    const float* values = nullptr;  // [samples, kLossColumns]
    int layer = 0;
    MinibatchMetrics metrics;
    int64_t number = 0;  // over the whole run
    bool training = true;
    Ticket seen, sent;  // found finite; only the main one is sent
  };
  // A range of the backend's memory that replicas sum; the job works on the host's side.
  struct Sum {
    std::byte* device = nullptr;
    ReduceJob job;
  };
  void OutputReady(int output) override;
  void GradientReady(int index) override;
  void WeightGradientReady(int i) override;

  void MakeSlots();
  void MakeSums();
  void MakeReports();
  void RunAction(const Action& action);
  void ReceiveInputs(int64_t b);
  void Load(MessageSlot& slot, int64_t b);
  void Forward(int64_t b, int64_t version);
  void ReceiveGradients(int64_t b);
  void Backward(int64_t b, int64_t version);
  void ForwardAgain(int64_t b, int64_t version);
  void Update(int64_t first, int64_t version);
  void SetRoundWeights(int64_t first);
  void StartSum(Sum& sum);
  void FinishSum(Sum& sum, const WaitReason& reason, const char* purpose);
  void ReportLosses(const StageProgram& program, int64_t b);
  void PostInputs(int64_t k);
  void PostGradients(int64_t k);
  void PostReceive(MessageSlot& slot, size_t i, const BorderMessage& message, int64_t b);
  void AwaitMessage(MessageSlot& slot, size_t i, const BorderMessage& message, int64_t b,
                    const char* action);
  void AwaitOutputs(int64_t b);
  void SendTo(const BorderMessage& message, const MessageSlot& slot, size_t i, size_t bytes,
              Opening opening, Ticket& ticket, Ticket& header_ticket);
  Opening HandOver(MessageSlot& slot, size_t i, TensorId tensor, size_t bytes, const char* purpose);
  void WaitForSends();
  bool Acknowledges(const BorderMessage& message) const;
  int AcknowledgementTag(const BorderMessage& message) const;
  int HeaderTag(const BorderMessage& message) const;
  void AverageState();

  void CheckMessage(const std::byte* at, size_t bytes, const BorderMessage& message,
                    int64_t b) const;
  const BorderMessage& MessageAt(int m) const {
    return spec_.cut->messages[static_cast<size_t>(m)];
  }
  MessageSlot& InputsOf(int64_t b) { return At(inputs_, b); }
  MessageSlot& OutputsOf(int64_t b) { return At(outputs_, b); }
  MessageSlot& GradientsIn(int64_t b) { return At(gradients_in_, b); }
  MessageSlot& GradientsOut(int64_t b) { return At(gradients_out_, b); }
  template <typename T>
  T& At(std::vector<T>& ring, int64_t b) {
    return ring[static_cast<size_t>(Local(b)) % ring.size()];
  }
  StageMemory MemoryOf(int64_t b, int64_t version);
  int64_t Local(int64_t b) const { return b / replicas_; }
  int64_t SamplesIn(int64_t b) const;
  int PeerOf(int stage, int64_t b) const;
  int64_t RunNumber(int64_t b) const { return segment_.first_number + b; }

  const PipelineSpec& spec_;
  Backend& backend_;
  Comm& comm_;
  int stage_, replica_, replicas_;
  StageSetup setup_;
  WeightVersions versions_;
  Buffer gradients_, momentum_, state_, scratch_;
  Buffer spare_state_;                  // written by a forward pass that runs again
  Buffer host_gradients_, host_state_;  // of a device: the host's side of what replicas sum
  std::vector<Arena> arenas_;
  std::vector<MessageSlot> inputs_, outputs_, gradients_in_, gradients_out_;
  std::vector<size_t> payload_bytes_;  // of one Fill
  std::vector<bool> throttled_;        // for each stage: do gradients come back to it?
  std::vector<int> input_tags_;        // of the message that brings each input, or -1: the loader
  std::deque<Sum> sums_;               // one a bucket
  std::vector<int> bucket_ending_at_;  // bucket whose first layer this is, or -1
  std::unique_ptr<AllReducer> reducer_;
  Sum state_sum_;
  Buffer loss_memory_;
  std::deque<LossReport> reports_;

  // The segment under way.
  Segment segment_;
  int64_t segment_index_ = 0, minibatches_ = 0, local_minibatches_ = 0;
  int64_t current_ = 0;  // minibatch that the observer's calls are about
  StageProgram* current_program_ = nullptr;
  int64_t reported_ = 0;

  ActionClock clock_;
  Staging staging_;  // the last: all that is queued is done before any memory goes
};

}  // namespace pd
