#include "pipeline/deferred_backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace pd {
namespace {

// Owns what the spans of a call point to.
struct Call {
  explicit Call(const OpArgs& a)
      : x(a.x.begin(), a.x.end()),
        dx(a.dx.begin(), a.dx.end()),
        params(a.params.begin(), a.params.end()),
        dparams(a.dparams.begin(), a.dparams.end()),
        state(a.state.begin(), a.state.end()),
        args(a) {}
  OpArgs Args() const {
    OpArgs now = args;
    now.x = x;
    now.dx = dx;
    now.params = params;
    now.dparams = dparams;
    now.state = state;
    return now;
  }
  std::vector<const void*> x;
  std::vector<void*> dx;
  std::vector<const void*> params;
  std::vector<void*> dparams, state;
  OpArgs args;
};

class DeferredOp final : public Op {
 public:
  DeferredOp(DeferredBackend& device, std::unique_ptr<Op> op)
      : device_(device), op_(std::move(op)) {
    info_ = op_->info();
  }
  void Prepare() override { op_->Prepare(); }
  void Forward(const OpArgs& args) override { Defer(&Op::Forward, args); }
  void BackwardData(const OpArgs& args) override { Defer(&Op::BackwardData, args); }
  void BackwardWeights(const OpArgs& args) override { Defer(&Op::BackwardWeights, args); }

 private:
  void Defer(void (Op::*method)(const OpArgs&), const OpArgs& args) {
    device_.Enqueue(Queue::kCompute,
                    [op = op_, method, call = Call(args)] { ((*op).*method)(call.Args()); });
  }
  DeferredBackend& device_;
  std::shared_ptr<Op> op_;  // queued calls keep it
};

}  // namespace

DeferredBackend::DeferredBackend(std::unique_ptr<Backend> backend, DeferredPolicy policy)
    : ForwardingBackend(std::move(backend)), policy_(policy), random_(policy.seed) {
  thread_ = std::thread([this] { Loop(); });
}

DeferredBackend::~DeferredBackend() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DeferredBackend::Push(Queue queue, Item item) {
  {
    const std::lock_guard lock(mutex_);
    QueueOf(queue).push_back(std::move(item));
    pushed_ns_ = NowNs();
  }
  changed_.notify_all();
}

void DeferredBackend::Enqueue(Queue queue, std::function<void()> work) {
  Push(queue, {.work = std::move(work)});
}

bool DeferredBackend::Ready(Queue queue) const {
  const std::deque<Item>& items = queues_[static_cast<size_t>(queue)];
  if (items.empty()) return false;
  const Item& next = items.front();
  return next.point == nullptr || next.point->reached >= next.count;
}

int64_t DeferredBackend::PatienceNs(Queue queue) const {
  const bool awaited = awaited_ != nullptr && awaited_->reached < awaited_->recorded;
  if (awaited || stop_) return 0;
  return 1000 * (queue == policy_.order.back() ? policy_.last_patience_us : policy_.patience_us);
}

void DeferredBackend::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    std::array<Queue, 3> ready{};
    size_t count = 0;
    int64_t patience = INT64_MAX;
    const int64_t still = NowNs() - pushed_ns_;
    for (const Queue queue : policy_.order) {
      if (!Ready(queue)) continue;
      patience = std::min(patience, PatienceNs(queue));
      if (still >= PatienceNs(queue)) ready[count++] = queue;
    }
    if (count == 0) {
      if (patience < INT64_MAX) {
        changed_.wait_for(lock, std::chrono::nanoseconds(patience - still));
      } else if (stop_) {
        return;
      } else {
        changed_.wait(lock);
      }
      continue;
    }
    const Queue queue = ready[policy_.any ? random_() % count : 0];
    const Item item = std::move(QueueOf(queue).front());
    QueueOf(queue).pop_front();
    if (item.work) {
      lock.unlock();
      item.work();
      lock.lock();
    }
    if (awaited_ != nullptr) changed_.notify_all();
  }
}

std::unique_ptr<Mark> DeferredBackend::MakeMark() { return std::make_unique<Point>(); }

void DeferredBackend::Record(Queue queue, Mark& mark, const char* /*purpose*/) {
  auto& point = static_cast<Point&>(mark);
  uint64_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    count = ++point.recorded;
  }
  Enqueue(queue, [this, &point, count] {
    const std::lock_guard lock(mutex_);
    point.reached = count;
    point.reached_ns = NowNs();
  });
}

void DeferredBackend::Wait(Queue queue, const Mark& mark, const char* /*purpose*/) {
  const auto& point = static_cast<const Point&>(mark);
  Push(queue, {.work = {}, .point = &point, .count = point.recorded});
}

void DeferredBackend::WaitOnHost(const Mark& mark, const char* /*purpose*/) {
  const auto& point = static_cast<const Point&>(mark);
  std::unique_lock lock(mutex_);
  awaited_ = &point;
  changed_.notify_all();
  changed_.wait(lock, [&] { return point.reached >= point.recorded; });
  awaited_ = nullptr;
}

void DeferredBackend::Notify(Queue queue, Notice notice, void* context) {
  Enqueue(queue, [notice, context] { notice(context); });
}

double DeferredBackend::ElapsedMs(const Mark& from, const Mark& to) const {
  const auto& begin = static_cast<const Point&>(from);
  const auto& end = static_cast<const Point&>(to);
  const std::lock_guard lock(mutex_);
  for (const Point* point : {&begin, &end}) {
    PD_CHECK(point->recorded > 0 && point->reached == point->recorded,
             "a mark that is not reached");
  }
  return NsToMs(end.reached_ns - begin.reached_ns);
}

void DeferredBackend::Transfer(Queue queue, void* to, const void* from, size_t bytes) {
  Enqueue(queue, [=] { std::memcpy(to, from, bytes); });
}
void DeferredBackend::Copy(void* to, const void* from, size_t bytes) {
  Enqueue(Queue::kCompute, [=, this] { inner().Copy(to, from, bytes); });
}
void DeferredBackend::ToDense(const Layout& layout, const void* from, void* dense) {
  Enqueue(Queue::kCompute, [=, this] { inner().ToDense(layout, from, dense); });
}
void DeferredBackend::FromDense(const Layout& layout, const void* dense, void* to) {
  Enqueue(Queue::kCompute, [=, this] { inner().FromDense(layout, dense, to); });
}
void DeferredBackend::Accumulate(void* acc, const void* x, size_t count) {
  Enqueue(Queue::kCompute, [=, this] { inner().Accumulate(acc, x, count); });
}
void DeferredBackend::Sgd(const SgdArgs& args) {
  Enqueue(Queue::kCompute, [=, this] { inner().Sgd(args); });
}

void DeferredBackend::AwaitCompute() {
  Point point;
  Record(Queue::kCompute, point, "");
  WaitOnHost(point, "");
}
void DeferredBackend::ToHost(const Layout& layout, const void* from, void* host) {
  ToDense(layout, from, host);
  AwaitCompute();
}
void DeferredBackend::FromHost(const Layout& layout, const void* host, void* to) {
  FromDense(layout, host, to);
  AwaitCompute();
}

std::unique_ptr<Op> DeferredBackend::Wrap(std::unique_ptr<Op> op) {
  return std::make_unique<DeferredOp>(*this, std::move(op));
}

}  // namespace pd
