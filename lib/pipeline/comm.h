#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/trace.h"
#include "transport/transport.h"

namespace pd {

/// Something started on the communication thread; told there when it is done.
class CommOperation {
 public:
  virtual ~CommOperation() = default;
  virtual void Done(size_t bytes) = 0;
};

/// What a worker waits for, for the report of a stall.
struct WaitReason {
  const char* action = "";  ///< "receive inputs", …
  int64_t minibatch = -1;   ///< Over the whole run, or -1.
  int peer = -1;            ///< Rank that is waited for, or -1.
};

/// The end of an operation, as the computing thread sees it. Belongs to one operation at a time.
class Ticket final : public CommOperation {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  size_t bytes() const { return bytes_; }  ///< Valid once done.
  /// For a trace: what is moved, of which minibatch (over the whole run). Set before the operation
  /// starts.
  void SetLabel(ActionKind kind, int64_t minibatch) { slice_ = {kind, minibatch, 0, 0}; }
  TraceSlice& slice() { return slice_; }
  /// Before the next operation uses the ticket. A new ticket counts as done, with nothing
  /// outstanding.
  void Reset() { done_.store(false, std::memory_order_relaxed); }
  void Done(size_t bytes) override {
    bytes_ = bytes;
    done_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<bool> done_{true};
  size_t bytes_ = 0;
  TraceSlice slice_;
};

class Comm;

/// How far a queue of a device has come, as its notices tell.
class Gate {
 public:
  explicit Gate(Comm& comm) : comm_(comm) {}
  /// Backend::Notify's notice: `context` is the gate.
  static void Open(void* context);
  uint64_t opened() const { return opened_.load(std::memory_order_acquire); }

 private:
  Comm& comm_;
  std::atomic<uint64_t> opened_{0};
};

/// When memory is there or free: once `gate` has opened `count` times; at once without a gate.
struct Opening {
  const Gate* gate = nullptr;
  uint64_t count = 0;

  bool open() const { return gate == nullptr || gate->opened() >= count; }
};

/// Time limits of a worker that waits and gets nothing.
struct StallLimits {
  double report_s =
      10;  ///< After this long, one line that says what is waited for; again at each doubling.
  double fail_s = 300;  ///< After this long, Error kComm.
};

/// The communication thread of a worker: the only thread that calls the transport after
/// construction. Sends, receives and all-reduces go on while the worker computes. MPI moves data
/// only inside its calls, so the thread polls while anything is under way; between polls it sleeps,
/// so that it costs the computing thread, with which it may share a core, next to nothing.
///
/// All public calls come from one thread, the computing one.
class Comm {
 public:
  explicit Comm(Transport& transport, StallLimits limits = {});
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Memory stays untouched until the ticket is done. What has an opening starts when that is
  /// there; sends to one peer with one tag keep their order, and so do receives, and tasks.
  void Send(int peer, int tag, const void* data, size_t bytes, Ticket& ticket,
            Opening opening = {});
  void Receive(int peer, int tag, void* data, size_t max_bytes, Ticket& ticket,
               Opening opening = {});
  /// Records every later send and receive of a labelled ticket, from its start to its end.
  void SetTrace(Trace* trace) { trace_ = trace; }

  /// Ends the communication thread and gives up what it has started: nothing is moved from here on.
  /// For a worker that fails, before the memory that messages are in goes away; Wait does so itself
  /// when it gives up.
  void Stop();

  /// Runs task.Done(0) on the communication thread. What it throws ends that thread.
  void Run(CommOperation& task, Opening opening = {});
  /// Throws what the communication thread died of, if it did.
  void Check() {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
  }
  /// Ends a nap of the communication thread. From any thread.
  void Signal();
  /// The worker's kernels run elsewhere, so its core is free to look for messages more often.
  void UseIdleCore() { idle_core_ = true; }
  /// Wait calls `watch` about once a second while it waits; what that throws ends the wait. For a
  /// device: one that fails gives no notices, so what waits for an opening would wait in vain.
  void SetWatch(std::function<void()> watch) { watch_ = std::move(watch); }
  bool takes_device_memory() const { return transport_.takes_device_memory(); }

  /// Waits until `ticket` is done. Throws what the communication thread died of, or kComm after a
  /// stall.
  void Wait(const Ticket& ticket, const WaitReason& reason);
  /// Who this worker is, for the report of a stall: "stage 1 replica 0".
  void SetRole(std::string role) { role_ = std::move(role); }

  /// Small blocking exchanges for set-up and drains; every worker of the run takes part.
  std::vector<std::string> Gather(const std::string& mine);  ///< One text a rank; on rank 0 only.
  std::vector<std::string> GatherAll(const std::string& mine);  ///< One text a rank, on every rank.
  std::string Broadcast(const std::string& text, int root);
  void Barrier() { GatherAll(""); }

  int64_t waited_ns() const { return waited_ns_; }
  /// Payloads and headers so far. Received: exact while no send is under way.
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  int64_t bytes_received() const {
    return bytes_moved_.load(std::memory_order_relaxed) - bytes_sent();
  }
  const StallLimits& limits() const { return limits_; }
  void SetLimits(StallLimits limits) { limits_ = limits; }

  // ---- For operations, on the communication thread.
  void StartSend(int peer, int tag, const void* data, size_t bytes, CommOperation& operation);
  void StartReceive(int peer, int tag, void* data, size_t max_bytes, CommOperation& operation);

 private:
  struct Command {
    enum class Kind { kSend, kReceive, kRun } kind = Kind::kRun;
    int peer = 0, tag = 0;
    void* data = nullptr;
    size_t bytes = 0;
    CommOperation* operation = nullptr;
    Opening opening = {};
  };
  static constexpr size_t kQueue = 1 << 14;  // commands that may wait for the communication thread
  static constexpr size_t kHeld = 1 << 12;   // that may wait for an opening

  void Push(const Command& command);
  bool RunCommands();
  bool RunHeld();
  bool MayStart(const Command& command, size_t held) const;
  void Start(const Command& command);
  bool PollTransport();
  void Loop();
  void Nap(uint32_t seen);
  void SendText(int peer, const std::string& text);
  std::string ReceiveText(int peer);

  Transport& transport_;
  StallLimits limits_;
  int rank_, size_;
  std::string role_ = "start-up";
  std::function<void()> watch_;
  std::vector<Command> queue_;
  std::vector<Command> held_;  // taken from the queue, but their openings are not there yet
  std::atomic<size_t> pushed_{0}, taken_{0};
  std::atomic<uint32_t> signal_{0};    // the computing thread has pushed something
  std::atomic<uint32_t> progress_{0};  // something is done
  std::atomic<bool> sleeping_{false}, waiting_{false}, stop_{false}, failed_{false},
      idle_core_{false};
  std::exception_ptr failure_;
  std::vector<Transport::Completion> completions_;
  size_t active_ = 0;
  int64_t empty_polls_ = 0;
  std::atomic<Trace*> trace_{nullptr};
  int64_t waited_ns_ = 0;
  std::atomic<int64_t> bytes_sent_{0}, bytes_moved_{0};
  std::thread thread_;
};

/// Tags of the run's messages; those of the cut's border messages follow kTagBorder.
inline constexpr int kTagControl = 0;
inline constexpr int kTagMetrics = 1;
inline constexpr int kTagCheckpoint = 2;
inline constexpr int kReduceChunks = 32;  ///< Of all-reduces, under way at a time.
inline constexpr int kReducePhases = 4;   ///< At most, of each of these.
inline constexpr int kTagReduce = 16;     ///< One a phase of each chunk under way.
inline constexpr int kTagBorder = kTagReduce + kReducePhases * kReduceChunks;

}  // namespace pd
