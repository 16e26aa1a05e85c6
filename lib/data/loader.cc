// A ring of depth + 1 buffers: the consumer holds one while the thread fills the others. One mutex,
// taken once a minibatch on each side; reading itself runs outside it. Start takes over by raising
// `abandon`, which the thread looks at between samples, and waiting until it reads no more.
#include "data/loader.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "base/error.h"

namespace pd {
namespace {

constexpr size_t kAlignment = 64;

struct AlignedDelete {
  void operator()(std::byte* memory) const {
    ::operator delete (memory, std::align_val_t{kAlignment});
  }
};
using AlignedMemory = std::unique_ptr<std::byte, AlignedDelete>;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct Slot {
  AlignedMemory memory;
  std::vector<std::byte*> fields;
  Minibatch minibatch;
};

}  // namespace

struct Loader::Impl {
  Impl(const Dataset& dataset, int64_t batch, int depth);
  ~Impl();

  void Run();
  void Fill(Slot& slot, int64_t number);
  bool MayRead() const {
    return !abandon && error == nullptr && next < end && produced - released < slots.size();
  }
  Slot& SlotOf(uint64_t count) { return slots[count % slots.size()]; }

  const Dataset& data;
  const int64_t batch_size;
  std::vector<Slot> slots;

  // Set by Start while the thread reads nothing.
  std::vector<int64_t> order;
  uint64_t epoch = 0;
  int64_t step = 1, end = 0;

  std::mutex mutex;
  std::condition_variable work, ready;  ///< For the thread; for the consumer.
  std::atomic<bool> abandon = false;    ///< Written under the mutex.
  bool quit = false, reading = false;
  int64_t next = 0;  ///< The minibatch to read next.
  /// Minibatches of this pass: read, handed out, given back.
  uint64_t produced = 0, taken = 0, released = 0;
  std::exception_ptr error;

  std::thread thread;  // last: it uses all the others
};

Loader::Impl::Impl(const Dataset& dataset, int64_t batch, int depth)
    : data(dataset), batch_size(batch) {
  PD_CHECK(batch >= 1 && depth >= 1, "batch size {}, depth {}", batch, depth);
  slots.resize(static_cast<size_t>(depth) + 1);
  const int64_t rows = std::min(batch, std::max<int64_t>(data.size(), 1));
  size_t bytes = 0;
  for (const TensorSpec& field : data.fields()) bytes += RoundUp(field.Bytes(rows));
  for (Slot& slot : slots) {
    slot.memory.reset(
        static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})));
    std::byte* at = slot.memory.get();
    for (const TensorSpec& field : data.fields()) {
      slot.fields.push_back(at);
      slot.minibatch.fields.push_back(at);
      at += RoundUp(field.Bytes(rows));
    }
  }
  thread = std::thread([this] { Run(); });
}

Loader::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    quit = true;
    abandon = true;
  }
  work.notify_one();
  thread.join();
}

void Loader::Impl::Run() {
  std::unique_lock lock(mutex);
  while (true) {
    work.wait(lock, [this] { return quit || MayRead(); });
    if (quit) return;
    Slot& slot = SlotOf(produced);
    const int64_t number = next;
    reading = true;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      Fill(slot, number);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    reading = false;
    if (thrown != nullptr) {
      error = thrown;
    } else {
      ++produced;
      next += step;
    }
    ready.notify_one();
  }
}

void Loader::Impl::Fill(Slot& slot, int64_t number) {
  const int64_t first = number * batch_size;
  const int64_t samples = std::min(batch_size, data.size() - first);
  slot.minibatch.number = number;
  slot.minibatch.samples = samples;
  for (size_t f = 0; f < slot.fields.size(); ++f) {
    const size_t bytes = data.fields()[f].Bytes(1);
    for (int64_t s = 0; s < samples && !abandon; ++s) {
      data.Read(order[static_cast<size_t>(first + s)], static_cast<int>(f), epoch,
                slot.fields[f] + static_cast<size_t>(s) * bytes);
    }
  }
}

Loader::Loader(const Dataset& data, int64_t batch_size, int depth)
    : impl_(std::make_unique<Impl>(data, batch_size, depth)) {}

Loader::~Loader() = default;

int64_t Loader::num_minibatches() const {
  return (impl_->data.size() + impl_->batch_size - 1) / impl_->batch_size;
}

int64_t Loader::SamplesIn(int64_t minibatch) const {
  PD_CHECK(minibatch >= 0 && minibatch < num_minibatches(), "minibatch {} of {}", minibatch,
           num_minibatches());
  return std::min(impl_->batch_size, impl_->data.size() - minibatch * impl_->batch_size);
}

void Loader::Start(std::vector<int64_t> order, uint64_t epoch, int64_t first, int64_t step,
                   int64_t end) {
  PD_CHECK(static_cast<int64_t>(order.size()) == impl_->data.size(),
           "an order of {} for {} samples", order.size(), impl_->data.size());
  PD_CHECK(first >= 0 && step >= 1 && end <= num_minibatches(), "minibatches {}, +{}, to {} of {}",
           first, step, end, num_minibatches());
  {
    std::unique_lock lock(impl_->mutex);
    impl_->abandon = true;
    impl_->ready.wait(lock, [this] { return !impl_->reading; });
    impl_->abandon = false;
    impl_->order = std::move(order);
    impl_->epoch = epoch;
    impl_->next = first;
    impl_->step = step;
    impl_->end = end;
    impl_->produced = impl_->taken = impl_->released = 0;
    impl_->error = nullptr;
  }
  impl_->work.notify_one();
}

const Minibatch& Loader::Next() {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  impl.released = impl.taken;  // the one handed out last is free again
  impl.work.notify_one();
  const auto more = [&] { return impl.produced > impl.taken; };
  PD_CHECK(more() || impl.error != nullptr || impl.next < impl.end,
           "asked for a minibatch after the last of the pass");
  impl.ready.wait(lock, [&] { return more() || impl.error != nullptr; });
  if (!more()) std::rethrow_exception(impl.error);
  return impl.SlotOf(impl.taken++).minibatch;
}

}  // namespace pd
