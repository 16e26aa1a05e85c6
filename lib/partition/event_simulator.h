#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "partition/network.h"
#include "partition/simulator.h"

namespace pd::simulation {

/// Of the runtime, pipeline/stage_setup.h.
inline constexpr int64_t kGradientBuffers = 2;

// Something that a worker waits for: parts come one by one, the last sets the time.
struct Gate {
  double time = 0;
  int32_t missing = 0;
  int32_t waiting = -1;  // A worker.
};

// The all-reduce of a bucket in a round: first the parts, then the results. Both halves end when
// all replicas have sent and received theirs.
struct Reduction {
  double time = 0;      // Of its end, once `done`.
  int32_t missing = 0;  // Replicas that have yet to start.
  int32_t sending = 0;  // Halves under way.
  int32_t receiving = 0;
  bool results = false, done = false;
};

// A half of a replica, one way, that waits for its turn: a pair of sockets keeps the order.
struct Half {
  int32_t reduction = 0, bucket = 0;  // Of the stage.
  double fraction = 1;                // What of it is still to be moved.
};

struct Transfer {
  int32_t message = 0;
  int64_t minibatch = 0;
  double since = 0;
};

struct Event {
  enum class Kind : uint8_t { kStep, kSend, kReduce, kResults };
  double time = 0;
  int64_t order = 0;
  Kind kind = Kind::kStep;
  int32_t who = 0;   // A worker; kResults: a stage.
  int32_t what = 0;  // kSend: a message; kReduce, kResults: a bucket.
  int64_t minibatch = 0;

  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : order > other.order;
  }
};

struct Worker {
  int id = 0, stage = 0, replica = 0;
  double speed = 1;
  std::vector<uint32_t> actions;  // minibatch · 8 + kind
  size_t next = 0;
  size_t bucket = 0;     // Of the update under way.
  bool started = false;  // The action under way computes.
  double since = 0;      // When the action under way began.
  int64_t backwards = 0;
  int64_t waits_round = -1;       // For which bucket of which round's all-reduce it waits.
  std::vector<Transfer> pending;  // Messages to it that wait for a buffer.
  std::deque<Half> halves[2];     // By direction; the first is under way.
  std::vector<std::pair<int, int64_t>> held;  // Buckets behind a large one, and their minibatch.
};

struct Stage {
  int first = 0;  // Its first worker, as an index into workers_.
  bool throttled = false;
  int64_t replicas = 1, in_flight = 1;
  std::vector<int32_t> outputs, gradients;  // Messages that it sends.
  std::vector<int32_t> acknowledged;        // Messages that it receives and acknowledges.
  std::vector<Gate> inputs_in, gradients_in, outputs_out, gradients_out;  // [minibatch]
  std::vector<Reduction> reductions;                                      // [round · buckets + i]
  SimulatedNetwork::Group group;
};

/// Runs the action lists of all workers; see simulator.h.
class Simulator {
 public:
  struct Options {
    int64_t minibatches = 0;
    bool trace = false;
    // Stops when two stretches of `window` minibatches between these take equally long.
    int64_t settled = 0, window = 0, draining = 0;
  };

  Simulator(const std::string& schedule, const PipelineShape& shape,
            const SimulatedPipeline& pipeline, const Options& options);
  void Run();
  double done(int64_t minibatch) const { return done_[static_cast<size_t>(minibatch)]; }
  // The period of two stretches that agree, or nothing.
  std::optional<double> steady_ms() const { return steady_; }
  int64_t work() const { return work_ + network_.work(); }
  SimulatedRun TakeRun() { return std::move(run_); }

 private:
  void AddWorker(const std::string& schedule, const PipelineShape& shape, int s, int r);
  void MakeGates(int s);
  void Push(double time, Event::Kind kind, int who, int what, int64_t minibatch);
  void Wake(double time, int worker) { Push(time, Event::Kind::kStep, worker, 0, 0); }

  // Whether gate `b` is open at `now`; if not, `worker` is woken when it is, and tries again.
  bool Passes(std::vector<Gate>& gates, int64_t b, double now, int worker);
  void Arrive(Gate& gate, double time);

  // ---- Workers.

  // Goes on with the actions of `w` at `now`, until one takes time or waits.
  void Step(double now, int w);

  // How long the action computes, or -1 if it waits.
  double Start(double now, int w, ActionKind kind, int64_t b);
  double StartUpdate(double now, int w, int64_t first);
  void Finish(double now, int w, ActionKind kind, int64_t b);
  void CheckSteady();
  static int64_t ToNs(double ms) { return std::llround(ms * 1e6); }

  // ---- Messages.

  int Receiver(const SimulatedPipeline::Message& message, int64_t b) const;
  int Sender(const SimulatedPipeline::Message& message, int64_t b) const;

  void StartMessages(double now, int w, const std::vector<int32_t>& messages, int64_t b);

  // Whether the receiver has a buffer for a message of minibatch b.
  bool IsPosted(const SimulatedPipeline::Message& message, int64_t b, const Worker& to) const;

  void Send(double now, int32_t m, int64_t b);

  // A backward pass of `to` has freed buffers.
  void Release(double now, Worker& to);
  void StartTransfer(double since, double now, int32_t m, int64_t b);

  // Tokens: a transfer's index, or −1 − 2 · worker − direction for the first half of its queue.
  void Moved(double now, int64_t token);

  // The reader's answer to stages that no gradient throttles.
  void Acknowledge(double now, int w, int64_t b);

  // ---- All-reduces.

  // Worker `w` has the gradients of a bucket: its parts go to the other replicas. When all have
  // sent theirs and the slowest link is through, the sums go back. A bucket too large to be under
  // way as a whole is done before the next one starts.
  void Reduce(double now, int w, int bucket, int64_t b);
  void Enqueue(double now, int w, int direction, const Half& half);
  void StartHalf(double now, int w, int direction);
  void EndHalf(double now, int w, int direction);

  // All parts are there: the sums go to all.
  void Results(double now, int s, int bucket, int64_t at);
  static constexpr int kOut = SimulatedNetwork::kOut, kIn = SimulatedNetwork::kIn;

  const SimulatedPipeline& pipeline_;
  Options options_;
  SimulatedNetwork network_;
  std::vector<Stage> stages_;
  std::vector<Worker> workers_;
  std::vector<Transfer> transfers_;  // Under way, by token.
  std::vector<size_t> unused_transfers_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<int> left_;     // For each minibatch, stages that have yet to run its backward pass.
  std::vector<double> done_;  // End of each minibatch's last backward pass, at whichever stage.
  int64_t completed_ = 0, windows_ = 0, order_ = 0, work_ = 0;
  double last_window_ms_ = 0;
  std::optional<double> steady_;
  SimulatedRun run_;
};

}  // namespace pd::simulation
