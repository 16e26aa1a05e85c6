#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "pipeline/comm.h"
#include "pipeline/trace.h"

namespace pd {

/// Times what a worker does: how long it computes, how long it idles, and the slices of its trace.
///
/// On the host an action counts from its start to its end, less its waits. On a device that would
/// time the queueing: there marks stand around an action's kernels, and between the last kernels
/// and the next the device idles. Marks are read when kAhead more stretches of kernels are queued,
/// so the host runs ahead of the device by no more than that.
class ActionClock {
 public:
  static constexpr int64_t kAhead = 8;

  /// Both outlive the clock.
  ActionClock(Backend& backend, Comm& comm);

  void SetTrace(Trace* trace) { trace_ = trace; }
  void BeginSegment();
  /// Returns when the device has done all kernels of the segment.
  void EndSegment();

  /// `minibatch` over the whole run. `loads`: the action is all waiting, for the data loader.
  void Begin(ActionKind kind, int64_t minibatch, bool loads);
  void End();
  /// Inside an action: kernels follow, and everything that they wait for is queued.
  void Computes();
  /// Inside an action: the host waits before it queues more, so the device may run dry.
  void Waits();

  int64_t compute_ns() const { return compute_ns_; }
  int64_t idle_ns() const { return idle_ns_; }

 private:
  // A stretch of kernels of one action.
  struct Span {
    ActionKind kind = ActionKind::kForward;
    int64_t minibatch = 0;
    std::unique_ptr<Mark> begin, end;
  };
  Span& At(int64_t span) { return spans_[static_cast<size_t>(span) % spans_.size()]; }
  void ReadOldest();

  Backend& backend_;
  Comm& comm_;
  Trace* trace_ = nullptr;
  int64_t compute_ns_ = 0, idle_ns_ = 0;
  // The action under way.
  ActionKind kind_ = ActionKind::kForward;
  int64_t minibatch_ = 0, begin_ns_ = 0, waited_ns_ = 0;
  bool loads_ = false;
  // Of a device: the ring keeps the last stretch that was read, for its end.
  std::array<Span, kAhead + 1> spans_;
  std::unique_ptr<Mark> start_;
  int64_t queued_ = 0, read_ = 0, first_ = 0;
  int64_t reached_ns_ = 0;  // the host's time at the end of the last stretch that was read
  bool open_ = false;
};

}  // namespace pd
