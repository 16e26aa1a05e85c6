#include "pipeline/action_clock.h"

#include <cmath>

#include "base/clock.h"

namespace pd {
namespace {

int64_t ToNs(double ms) { return std::llround(ms * 1e6); }

}  // namespace

ActionClock::ActionClock(Backend& backend, Comm& comm) : backend_(backend), comm_(comm) {
  if (!backend.on_device()) return;
  start_ = backend.MakeMark();
  for (Span& span : spans_) {
    span.begin = backend.MakeMark();
    span.end = backend.MakeMark();
  }
}

// Nothing is queued at a segment's start, so this mark is reached at once.
void ActionClock::BeginSegment() {
  if (!backend_.on_device()) return;
  backend_.Record(Queue::kCompute, *start_, "time a segment");
  reached_ns_ = NowNs();
  first_ = queued_;
}

void ActionClock::EndSegment() {
  while (read_ < queued_) ReadOldest();
}

void ActionClock::Begin(ActionKind kind, int64_t minibatch, bool loads) {
  kind_ = kind;
  minibatch_ = minibatch;
  loads_ = loads;
  if (backend_.on_device()) return;
  begin_ns_ = NowNs();
  waited_ns_ = comm_.waited_ns();
}

void ActionClock::End() {
  if (backend_.on_device()) {
    Waits();
    return;
  }
  const int64_t end = NowNs();
  const int64_t idle = loads_ ? end - begin_ns_ : comm_.waited_ns() - waited_ns_;
  idle_ns_ += idle;
  compute_ns_ += end - begin_ns_ - idle;
  if (trace_ != nullptr) trace_->Add({kind_, minibatch_, begin_ns_, end});
}

void ActionClock::Computes() {
  if (!backend_.on_device() || open_) return;
  while (queued_ - read_ >= kAhead) ReadOldest();
  Span& span = At(queued_);
  span.kind = kind_;
  span.minibatch = minibatch_;
  backend_.Record(Queue::kCompute, *span.begin, "time an action");
  open_ = true;
}

void ActionClock::Waits() {
  if (!open_) return;
  backend_.Record(Queue::kCompute, *At(queued_).end, "time an action");
  ++queued_;
  open_ = false;
}

void ActionClock::ReadOldest() {
  const Span& span = At(read_);
  backend_.WaitOnHost(*span.end, "run ahead");
  const Mark& before = read_ == first_ ? *start_ : *At(read_ - 1).end;
  const int64_t idle = ToNs(backend_.ElapsedMs(before, *span.begin));
  const int64_t compute = ToNs(backend_.ElapsedMs(*span.begin, *span.end));
  const int64_t begin = reached_ns_ + idle;
  reached_ns_ = begin + compute;
  idle_ns_ += idle;
  compute_ns_ += compute;
  ++read_;
  if (trace_ != nullptr) trace_->Add({span.kind, span.minibatch, begin, reached_ns_});
}

}  // namespace pd
