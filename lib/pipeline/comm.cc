// One thread talks to the transport, one computes. Commands go over through a single-producer
// single-consumer ring, ends come back as flags; both sides sleep on futexes, so a wake-up costs
// microseconds and an idle side costs nothing. MPI moves data only inside its calls, so while
// messages are under way the communication thread polls, and naps between polls that found nothing.
#include "pipeline/comm.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "pipeline/futex.h"

namespace pd {
namespace {

// Between polls that found nothing. While the worker waits, its core is free and every microsecond
// counts; while it computes, each poll costs it some, and a message needs a poll only now and then:
// at 10 Gbit/s 300 µs are 375 kB, which the sockets' buffers hold.
constexpr int64_t kNapWhileWaitingNs = 20'000;
constexpr int64_t kNapWhileComputingNs = 300'000;
constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace

Comm::Comm(Transport& transport, StallLimits limits)
    : transport_(transport),
      limits_(limits),
      rank_(transport.rank()),
      size_(transport.size()),
      queue_(kQueue),
      completions_(64) {
  held_.reserve(kHeld);
  thread_ = std::thread([this] { Loop(); });
}

Comm::~Comm() { Stop(); }

void Comm::Stop() {
  stop_ = true;
  Signal();
  if (!thread_.joinable()) return;
  thread_.join();
  transport_.Withdraw();
}

void Comm::Push(const Command& command) {
  const size_t at = pushed_.load(std::memory_order_relaxed);
  while (at - taken_.load(std::memory_order_acquire) >= kQueue && !failed_) {
    Signal();  // more in one burst than the queue holds: the other thread is at it
    std::this_thread::yield();
  }
  queue_[at % kQueue] = command;
  pushed_.store(at + 1, std::memory_order_release);
  Signal();
}

void Gate::Open(void* context) {
  auto* gate = static_cast<Gate*>(context);
  gate->opened_.fetch_add(1, std::memory_order_release);
  gate->comm_.Signal();
}

void Comm::Signal() {
  signal_.fetch_add(1);
  if (sleeping_.load()) FutexWake(signal_);
}

void Comm::Send(int peer, int tag, const void* data, size_t bytes, Ticket& ticket,
                Opening opening) {
  ticket.Reset();
  ticket.slice().begin_ns = NowNs();
  // The transport only reads it.
  Push({Command::Kind::kSend, peer, tag, const_cast<void*>(data), bytes, &ticket, opening});
}

void Comm::Receive(int peer, int tag, void* data, size_t max_bytes, Ticket& ticket,
                   Opening opening) {
  ticket.Reset();
  ticket.slice().begin_ns = NowNs();
  Push({Command::Kind::kReceive, peer, tag, data, max_bytes, &ticket, opening});
}

void Comm::Run(CommOperation& task, Opening opening) {
  Push({.operation = &task, .opening = opening});
}

void Comm::Wait(const Ticket& ticket, const WaitReason& reason) {
  if (ticket.done()) return;
  const int64_t start = NowNs();
  int64_t before = start, counted = 0, watched = 0;
  double report_s = std::min(limits_.report_s, limits_.fail_s);
  waiting_.store(true);
  Signal();  // poll now, and often
  while (true) {
    const uint32_t seen = progress_.load();
    if (ticket.done() || failed_.load()) break;
    const int64_t nap = std::min(kSecondNs, static_cast<int64_t>(report_s * 2.5e8));
    FutexWait(progress_, seen, nap);
    // A rank that was stopped itself (kill -STOP, a suspended machine) has not waited meanwhile.
    const int64_t now = NowNs();
    counted += std::min(now - before, 2 * nap);
    before = now;
    if (watch_ && counted - watched >= kSecondNs) {
      watched = counted;
      try {
        watch_();
      } catch (...) {
        Stop();
        throw;
      }
    }
    const double waited_s = NsToS(counted);
    if (waited_s < report_s || ticket.done()) continue;
    const bool receives = std::string_view(reason.action).substr(0, 7) == "receive";
    const std::string what = fmt::format(
        "{}: waiting for {:.0f} s to {}{}{}", role_, waited_s, reason.action,
        reason.minibatch < 0 ? "" : fmt::format(" of minibatch {}", reason.minibatch + 1),
        reason.peer < 0 ? "" : fmt::format(" {} rank {}", receives ? "from" : "to", reason.peer));
    if (waited_s >= limits_.fail_s) {
      Stop();
      Throw(ErrorCode::kComm, "stalled: {}; giving up", what);
    }
    Warn("stalled: {}", what);
    report_s = std::min(2 * report_s, limits_.fail_s);
  }
  waiting_.store(false);
  waited_ns_ += NowNs() - start;
  if (!ticket.done()) std::rethrow_exception(failure_);
}

void Comm::StartSend(int peer, int tag, const void* data, size_t bytes, CommOperation& operation) {
  transport_.StartSend(peer, tag, data, bytes, &operation);
  bytes_sent_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  ++active_;
}

void Comm::StartReceive(int peer, int tag, void* data, size_t max_bytes, CommOperation& operation) {
  transport_.StartReceive(peer, tag, data, max_bytes, &operation);
  ++active_;
}

void Comm::Start(const Command& c) {
  switch (c.kind) {
    case Command::Kind::kSend:
      StartSend(c.peer, c.tag, c.data, c.bytes, *c.operation);
      break;
    case Command::Kind::kReceive:
      StartReceive(c.peer, c.tag, c.data, c.bytes, *c.operation);
      break;
    case Command::Kind::kRun:
      c.operation->Done(0);
      break;
  }
}

bool Comm::RunCommands() {
  bool started = RunHeld();
  const size_t end = pushed_.load(std::memory_order_acquire);
  size_t at = taken_.load(std::memory_order_relaxed);
  for (; at != end && held_.size() < held_.capacity(); ++at) {
    const Command& command = queue_[at % kQueue];
    started = true;
    if (MayStart(command, held_.size())) {
      Start(command);
    } else {
      held_.push_back(command);
    }
  }
  taken_.store(at, std::memory_order_release);
  return started;
}

// Whether the opening of `command` is there, and nothing of its kind, peer and tag is among the
// first `held` that still wait: these keep their order.
bool Comm::MayStart(const Command& command, size_t held) const {
  if (!command.opening.open()) return false;
  return std::none_of(
      held_.begin(), held_.begin() + static_cast<ptrdiff_t>(held), [&](const Command& h) {
        return h.kind == command.kind && h.peer == command.peer && h.tag == command.tag;
      });
}

bool Comm::RunHeld() {
  size_t kept = 0;
  for (size_t i = 0; i < held_.size(); ++i) {
    const Command command = held_[i];
    if (!MayStart(command, kept)) {
      held_[kept++] = command;
      continue;
    }
    if (auto* ticket = dynamic_cast<Ticket*>(command.operation); ticket != nullptr) {
      ticket->slice().begin_ns = NowNs();
    }
    Start(command);
  }
  const bool started = kept < held_.size();
  held_.resize(kept);
  return started;
}

bool Comm::PollTransport() {
  if (active_ == 0) return false;
  const size_t count = transport_.Poll(completions_);
  for (size_t i = 0; i < count; ++i) {
    --active_;
    // Tokens are the operations that StartSend and StartReceive gave.
    auto* operation = static_cast<CommOperation*>(completions_[i].token);
    if (Trace* trace = trace_.load(std::memory_order_relaxed); trace != nullptr) {
      if (auto* ticket = dynamic_cast<Ticket*>(operation);
          ticket != nullptr && ticket->slice().minibatch >= 0) {
        ticket->slice().end_ns = NowNs();
        trace->Add(ticket->slice());
      }
    }
    bytes_moved_.fetch_add(static_cast<int64_t>(completions_[i].bytes), std::memory_order_relaxed);
    operation->Done(completions_[i].bytes);
  }
  return count > 0;
}

void Comm::Nap(uint32_t seen) {
  // A long wait is a rank that idles, not one that is late: it leaves the core alone more and more.
  const int64_t patience =
      std::min(kNapWhileWaitingNs * (1 + empty_polls_ / 64), kNapWhileComputingNs);
  const bool eager = waiting_ || idle_core_;
  const int64_t nap = active_ == 0 ? kSecondNs : eager ? patience : kNapWhileComputingNs;
  ++empty_polls_;
  sleeping_.store(true);
  if (signal_.load() == seen) FutexWait(signal_, seen, nap);
  sleeping_.store(false);
}

void Comm::Loop() {
  ::prctl(PR_SET_TIMERSLACK, 1);  // naps of the length asked for
  try {
    while (!stop_) {
      const uint32_t seen = signal_.load();
      const bool started = RunCommands();
      const bool finished = PollTransport();
      if (started || finished) {
        empty_polls_ = 0;
        progress_.fetch_add(1);
        if (waiting_.load()) FutexWake(progress_);
      } else {
        Nap(seen);
      }
    }
  } catch (...) {
    failure_ = std::current_exception();
    failed_ = true;
    progress_.fetch_add(1);
    FutexWake(progress_);
  }
}

void Comm::SendText(int peer, const std::string& text) {
  const uint64_t length = text.size();
  Ticket head, body;
  Send(peer, kTagControl, &length, sizeof length, head);
  Send(peer, kTagControl, text.data(), text.size(), body);
  Wait(head, {.action = "send control data", .peer = peer});
  Wait(body, {.action = "send control data", .peer = peer});
}

std::string Comm::ReceiveText(int peer) {
  const WaitReason reason{.action = "receive control data", .peer = peer};
  uint64_t length = 0;
  Ticket head, body;
  Receive(peer, kTagControl, &length, sizeof length, head);
  Wait(head, reason);
  std::string text(length, '\0');
  Receive(peer, kTagControl, text.data(), length, body);
  Wait(body, reason);
  return text;
}

std::vector<std::string> Comm::Gather(const std::string& mine) {
  if (rank_ != 0) {
    SendText(0, mine);
    return {};
  }
  std::vector<std::string> texts = {mine};
  for (int r = 1; r < size_; ++r) texts.push_back(ReceiveText(r));
  return texts;
}

std::vector<std::string> Comm::GatherAll(const std::string& mine) {
  std::vector<std::string> texts = Gather(mine);
  if (size_ == 1) return texts;
  std::string all;
  for (const std::string& text : texts) {
    const uint64_t length = text.size();
    all.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
  }
  texts.resize(static_cast<size_t>(size_));
  all = Broadcast(all, 0);
  size_t at = 0;
  for (std::string& text : texts) {
    uint64_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof length);
    text = all.substr(at + sizeof length, length);
    at += sizeof length + length;
  }
  return texts;
}

std::string Comm::Broadcast(const std::string& text, int root) {
  if (rank_ != root) return ReceiveText(root);
  for (int r = 0; r < size_; ++r) {
    if (r != root) SendText(r, text);
  }
  return text;
}

}  // namespace pd
