#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "support/forwarding_backend.h"

namespace pd {

/// When a DeferredBackend does what is queued.
struct DeferredPolicy {
  /// Of the queues that could go on, the first of these does; or any of them, by the seed.
  std::array<Queue, 3> order{Queue::kCompute, Queue::kUpload, Queue::kDownload};
  bool any = false;
  /// A queue goes on only when the host has queued nothing for so long, or waits for the device;
  /// the last of the order has a time of its own.
  int patience_us = 0, last_patience_us = 0;
  uint64_t seed = 1;
};

/// A host backend as a device: its calls only queue work, a thread of its own does it in an order
/// that marks and waits allow, and staging memory is other memory. So what the runtime forgets to
/// wait for or to copy gives wrong numbers.
class DeferredBackend final : public ForwardingBackend {
 public:
  DeferredBackend(std::unique_ptr<Backend> backend, DeferredPolicy policy);
  ~DeferredBackend() override;

  bool on_device() const override { return true; }
  std::string device_id() const override { return "deferred"; }
  Buffer AllocateStaging(size_t bytes) override { return inner().Allocate(bytes); }
  void Copy(void* to, const void* from, size_t bytes) override;
  void ToDense(const Layout& layout, const void* inner, void* dense) override;
  void FromDense(const Layout& layout, const void* dense, void* inner) override;
  void Accumulate(void* acc, const void* x, size_t count) override;
  void Sgd(const SgdArgs& args) override;
  void ToHost(const Layout& layout, const void* inner, void* host) override;
  void FromHost(const Layout& layout, const void* host, void* inner) override;
  void Transfer(Queue queue, void* to, const void* from, size_t bytes) override;
  std::unique_ptr<Mark> MakeMark() override;
  void Record(Queue queue, Mark& mark, const char* purpose) override;
  void Wait(Queue queue, const Mark& mark, const char* purpose) override;
  void WaitOnHost(const Mark& mark, const char* purpose) override;
  void Notify(Queue queue, Notice notice, void* context) override;
  double ElapsedMs(const Mark& from, const Mark& to) const override;

  void Enqueue(Queue queue, std::function<void()> work);

 protected:
  std::unique_ptr<Op> Wrap(std::unique_ptr<Op> op) override;

 private:
  struct Point final : Mark {
    uint64_t recorded = 0, reached = 0;
    int64_t reached_ns = 0;
  };
  // Work, or a wait for the `count`-th record of a point.
  struct Item {
    std::function<void()> work;
    const Point* point = nullptr;
    uint64_t count = 0;
  };
  void Push(Queue queue, Item item);
  void AwaitCompute();
  void Loop();
  bool Ready(Queue queue) const;
  int64_t PatienceNs(Queue queue) const;
  std::deque<Item>& QueueOf(Queue queue) { return queues_[static_cast<size_t>(queue)]; }

  const DeferredPolicy policy_;
  std::mt19937_64 random_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::deque<Item>, 3> queues_;
  int64_t pushed_ns_ = 0;
  const Point* awaited_ = nullptr;  // by the host
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pd
