// A ring of depth + 1 buffers: the consumer holds one while the threads fill the others. A thread
// claims the next samples of the minibatch that is being filled, or opens the next one. One mutex,
// taken for each claim and each minibatch; reading itself runs outside it. Start takes over by
// raising `abandon`, which the threads look at between samples, and waiting until none reads.
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
  int64_t unread = 0;  ///< Samples still to be read.
};

/// Some samples of a minibatch, for one thread to read.
struct Claim {
  Slot* slot = nullptr;
  int64_t first = 0, end = 0;  ///< In the minibatch.
  uint64_t place = 0;          ///< Of the first, in the samples of the pass.
};

}  // namespace

struct Loader::Impl {
  Impl(const Dataset& dataset, int64_t batch, int depth, int threads);
  ~Impl();

  void Run();
  void Read(Claim& claim);
  bool MayClaim() const {
    return !abandon && error == nullptr &&
           (row < rows || (next < end && opened - released < slots.size()));
  }
  Claim Take();
  void Complete(const Claim& claim, std::exception_ptr thrown);
  Slot& SlotOf(uint64_t count) { return slots[count % slots.size()]; }

  const Dataset& data;
  const int64_t batch_size;
  const int64_t rows_a_claim;
  std::vector<Slot> slots;

  // Set by Start while no thread reads.
  std::vector<int64_t> order;
  uint64_t epoch = 0;
  int64_t step = 1, end = 0;

  std::mutex mutex;
  std::condition_variable work, ready;  ///< For the threads; for the consumer.
  std::atomic<bool> abandon = false;    ///< Written under the mutex.
  bool quit = false;
  int reading = 0;            ///< Threads that read.
  int64_t next = 0;           ///< The minibatch to open next.
  int64_t row = 0, rows = 0;  ///< Samples claimed of the one opened last, and all that it has.
  /// Minibatches of this pass: opened for reading, read, handed out, given back.
  uint64_t opened = 0, produced = 0, taken = 0, released = 0;
  /// The first error in the order of the pass. Claims are taken in that order, so all samples
  /// before an error are read or fail themselves: which one is first does not depend on the
  /// threads.
  std::exception_ptr error;
  uint64_t error_place = 0;

  std::vector<std::thread> threads;  // last: they use all the others
};

Loader::Impl::Impl(const Dataset& dataset, int64_t batch, int depth, int num_threads)
    : data(dataset),
      batch_size(batch),
      rows_a_claim(num_threads == 1 ? batch : std::max<int64_t>(1, batch / (8 * num_threads))) {
  PD_CHECK(batch >= 1 && depth >= 1 && num_threads >= 1, "batch size {}, depth {}, {} threads",
           batch, depth, num_threads);
  slots.resize(static_cast<size_t>(depth) + 1);
  const int64_t most = std::min(batch, std::max<int64_t>(data.size(), 1));
  size_t bytes = 0;
  for (const TensorSpec& field : data.fields()) bytes += RoundUp(field.Bytes(most));
  for (Slot& slot : slots) {
    slot.memory.reset(
        static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})));
    std::byte* at = slot.memory.get();
    for (const TensorSpec& field : data.fields()) {
      slot.fields.push_back(at);
      slot.minibatch.fields.push_back(at);
      at += RoundUp(field.Bytes(most));
    }
  }
  for (int t = 0; t < num_threads; ++t) threads.emplace_back([this] { Run(); });
}

Loader::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    quit = true;
    abandon = true;
  }
  work.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void Loader::Impl::Run() {
  std::unique_lock lock(mutex);
  while (true) {
    work.wait(lock, [this] { return quit || MayClaim(); });
    if (quit) return;
    Claim claim = Take();
    ++reading;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      Read(claim);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    --reading;
    Complete(claim, thrown);
    ready.notify_one();
  }
}

Claim Loader::Impl::Take() {
  if (row == rows) {
    Slot& slot = SlotOf(opened++);
    slot.minibatch.number = next;
    slot.minibatch.samples = std::min(batch_size, data.size() - next * batch_size);
    row = 0;
    rows = slot.unread = slot.minibatch.samples;
    next += step;
  }
  Claim claim = {&SlotOf(opened - 1), row, std::min(rows, row + rows_a_claim)};
  claim.place = (opened - 1) * static_cast<uint64_t>(batch_size) + static_cast<uint64_t>(row);
  row = claim.end;
  return claim;
}

// Leaves the claim with the samples up to the one that failed, and its place.
void Loader::Impl::Read(Claim& claim) {
  const Slot& slot = *claim.slot;
  const int64_t base = slot.minibatch.number * batch_size;
  for (int64_t s = claim.first; s < claim.end && !abandon; ++s, ++claim.place) {
    for (size_t f = 0; f < slot.fields.size(); ++f) {
      data.Read(order[static_cast<size_t>(base + s)], static_cast<int>(f), epoch,
                slot.fields[f] + static_cast<size_t>(s) * data.fields()[f].Bytes(1));
    }
  }
}

void Loader::Impl::Complete(const Claim& claim, std::exception_ptr thrown) {
  if (thrown != nullptr) {
    if (error == nullptr || claim.place < error_place) {
      error = std::move(thrown);
      error_place = claim.place;
    }
    return;
  }
  claim.slot->unread -= claim.end - claim.first;
  while (produced < opened && SlotOf(produced).unread == 0) ++produced;
}

Loader::Loader(const Dataset& data, int64_t batch_size, int depth, int threads)
    : impl_(std::make_unique<Impl>(data, batch_size, depth, threads)) {}

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
  PD_CHECK(first >= 0 && step >= 1 && end <= num_minibatches(), "minibatches {}, +{}, to {} of {}",
           first, step, end, num_minibatches());
  PD_CHECK(
      static_cast<int64_t>(order.size()) >= std::min(impl_->data.size(), end * impl_->batch_size),
      "an order of {} for {} samples", order.size(), impl_->data.size());
  {
    std::unique_lock lock(impl_->mutex);
    impl_->abandon = true;
    impl_->ready.wait(lock, [this] { return impl_->reading == 0; });
    impl_->abandon = false;
    impl_->order = std::move(order);
    impl_->epoch = epoch;
    impl_->next = first;
    impl_->step = step;
    impl_->end = end;
    impl_->row = impl_->rows = 0;
    impl_->opened = impl_->produced = impl_->taken = impl_->released = 0;
    impl_->error = nullptr;
  }
  impl_->work.notify_all();
}

const Minibatch& Loader::Next() {
  Impl& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  impl.released = impl.taken;  // the one handed out last is free again
  impl.work.notify_all();
  const auto more = [&] { return impl.produced > impl.taken; };
  PD_CHECK(more() || impl.error != nullptr || impl.opened > impl.taken || impl.next < impl.end,
           "asked for a minibatch after the last of the pass");
  impl.ready.wait(lock, [&] { return more() || (impl.error != nullptr && impl.reading == 0); });
  if (!more()) std::rethrow_exception(impl.error);
  return impl.SlotOf(impl.taken++).minibatch;
}

}  // namespace pd
