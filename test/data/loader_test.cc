#include "data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "files.h"
#include "support/allocations.h"
#include "support/catch.h"

namespace pd {
namespace {

// Sample i holds i, i + 0.25, i + 0.5 (plus 1000 an epoch) and the label i mod 7.
class CountingData : public Dataset {
 public:
  explicit CountingData(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  const std::vector<TensorSpec>& fields() const override { return fields_; }
  void Read(int64_t index, int field, uint64_t epoch, void* out) const override {
    ++reads;
    if (index == bad_sample) Throw(ErrorCode::kIo, "sample {}: unreadable", index);
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (field == 0) {
      const float base = static_cast<float>(index) + 1000.0F * static_cast<float>(epoch);
      const float values[3] = {base, base + 0.25F, base + 0.5F};
      std::memcpy(out, values, sizeof values);
    } else {
      const auto label = static_cast<int32_t>(index % 7);
      std::memcpy(out, &label, sizeof label);
    }
  }

  int64_t bad_sample = -1;
  bool slow = false;
  mutable std::atomic<int64_t> reads = 0;

 private:
  int64_t size_;
  std::vector<TensorSpec> fields_ = {{{3}, DType::kF32}, {{}, DType::kI32}};
};

std::vector<int64_t> InOrder(int64_t size) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Compares a minibatch with reading its samples directly.
void CheckMinibatch(const Minibatch& minibatch, const Dataset& data, int64_t batch_size,
                    const std::vector<int64_t>& order, uint64_t epoch) {
  const int64_t first = minibatch.number * batch_size;
  REQUIRE(minibatch.samples == std::min(batch_size, data.size() - first));
  REQUIRE(minibatch.fields.size() == data.fields().size());
  for (size_t f = 0; f < data.fields().size(); ++f) {
    const size_t bytes = data.fields()[f].Bytes(1);
    REQUIRE(reinterpret_cast<uintptr_t>(minibatch.fields[f]) % 64 == 0);
    std::vector<std::byte> expected(bytes);
    for (int64_t s = 0; s < minibatch.samples; ++s) {
      data.Read(order[static_cast<size_t>(first + s)], static_cast<int>(f), epoch, expected.data());
      REQUIRE(std::memcmp(expected.data(), minibatch.fields[f] + s * bytes, bytes) == 0);
    }
  }
}

TEST_CASE("the loader gives what direct reads give, for every first, step and end") {
  const auto [depth, threads] = GENERATE(std::pair{1, 1}, std::pair{3, 1}, std::pair{2, 3});
  CAPTURE(depth, threads);
  for (const int64_t size : {1, 31, 64, 65}) {
    const CountingData data(size);
    for (const int64_t batch_size : {1, 8, 32, 100}) {
      Loader loader(data, batch_size, depth, threads);
      const int64_t all = loader.num_minibatches();
      REQUIRE(all == (size + batch_size - 1) / batch_size);
      uint64_t epoch = 0;
      for (const int64_t step : {1, 2, 3}) {
        for (int64_t first = 0; first < step; ++first) {
          for (const int64_t end : {all, all / 2, int64_t{0}}) {
            const std::vector<int64_t> order = EpochOrder(9, epoch, size);
            loader.Start(order, epoch, first, step, end);
            for (int64_t b = first; b < end; b += step) {
              const Minibatch& minibatch = loader.Next();
              REQUIRE(minibatch.number == b);
              CHECK(loader.SamplesIn(b) == minibatch.samples);
              CheckMinibatch(minibatch, data, batch_size, order, epoch);
            }
            ++epoch;
          }
        }
      }
    }
  }
}

TEST_CASE("the last minibatch is short: 65 samples at 32 are 32, 32 and 1") {
  const CountingData data(65);
  Loader loader(data, 32, 2);
  loader.Start(InOrder(65), 0, 0, 1, 3);
  CHECK(loader.num_minibatches() == 3);
  CHECK(loader.Next().samples == 32);
  CHECK(loader.Next().samples == 32);
  const Minibatch& last = loader.Next();
  CHECK(last.samples == 1);
  float value = 0;
  std::memcpy(&value, last.fields[0], sizeof value);
  CHECK(value == 64);
}

TEST_CASE("the minibatches of all replicas hold every sample once") {
  const int64_t size = 117;
  const CountingData data(size);
  for (const int64_t replicas : {1, 2, 3, 5}) {
    std::map<int64_t, int> times;
    for (int64_t replica = 0; replica < replicas; ++replica) {
      Loader loader(data, 8, 2);
      loader.Start(EpochOrder(4, 2, size), 0, replica, replicas, loader.num_minibatches());
      for (int64_t b = replica; b < loader.num_minibatches(); b += replicas) {
        const Minibatch& minibatch = loader.Next();
        const auto* values = reinterpret_cast<const float*>(minibatch.fields[0]);
        for (int64_t s = 0; s < minibatch.samples; ++s)
          ++times[static_cast<int64_t>(values[3 * s])];
      }
    }
    REQUIRE(times.size() == static_cast<size_t>(size));
    for (const auto& [sample, count] : times) CHECK(count == 1);
  }
}

TEST_CASE("a minibatch stays as it is until the next call, while others are read ahead") {
  const CountingData data(64);
  Loader loader(data, 4, 2);
  const std::vector<int64_t> order = EpochOrder(1, 0, 64);
  loader.Start(order, 0, 0, 1, 16);
  for (int64_t b = 0; b < 16; ++b) {
    const Minibatch& minibatch = loader.Next();
    // Two minibatches of 4 samples and 2 fields are read ahead while we hold this one, and no
    // third.
    const int64_t ahead = std::min<int64_t>(b + 3, 16) * 8;
    while (data.reads < ahead) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(data.reads == ahead);
    const auto* values = reinterpret_cast<const float*>(minibatch.fields[0]);
    CHECK(minibatch.number == b);
    for (int64_t s = 0; s < 4; ++s) {
      CHECK(values[3 * s] == static_cast<float>(order[static_cast<size_t>(4 * b + s)]));
    }
  }
}

TEST_CASE("an error while reading reaches Next after the minibatches before it") {
  CountingData data(100);
  data.bad_sample = 27;
  Loader loader(data, 10, 3);
  loader.Start(InOrder(100), 0, 0, 1, 10);
  // Samples 0 to 26 in 2 fields, then the first field of sample 27.
  while (data.reads < 55) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  for (int b = 0; b < 2; ++b) CHECK(loader.Next().number == b);
  for (int again = 0; again < 2; ++again) {
    CHECK_THROWS_WITH(loader.Next(), "sample 27: unreadable");
  }
  CHECK(data.reads == 55);  // it is not tried again
  // A new pass starts afresh; this one leaves the bad sample out.
  loader.Start(InOrder(100), 0, 3, 1, 10);
  for (int b = 3; b < 10; ++b) CHECK(loader.Next().number == b);
}

// Bad samples are found in another order than the pass has: the later ones fail at once, the first
// after a while.
TEST_CASE("whatever the number of threads, the error is that of the first bad sample") {
  class TwoBad : public CountingData {
   public:
    TwoBad() : CountingData(100) {}
    void Read(int64_t index, int field, uint64_t epoch, void* out) const override {
      if (index == 41) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (index >= 41 && index <= 45) Throw(ErrorCode::kIo, "sample {}: unreadable", index);
      CountingData::Read(index, field, epoch, out);
    }
  };
  const TwoBad data;
  for (const int threads : {1, 2, 5}) {
    Loader loader(data, 20, 3, threads);
    for (int pass = 0; pass < 3; ++pass) {
      loader.Start(InOrder(100), 0, 0, 1, 5);
      for (int b = 0; b < 2; ++b) CHECK(loader.Next().number == b);
      CHECK_THROWS_WITH(loader.Next(), "sample 41: unreadable");
    }
  }
}

TEST_CASE("several threads read one minibatch together") {
  // The first reads wait until three are under way at once.
  class Meeting : public CountingData {
   public:
    Meeting() : CountingData(8) {}
    void Read(int64_t index, int field, uint64_t epoch, void* out) const override {
      ++reading;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (!met && std::chrono::steady_clock::now() < limit) {
        if (reading >= 3) met = true;
        std::this_thread::yield();
      }
      CountingData::Read(index, field, epoch, out);
      --reading;
    }
    mutable std::atomic<int> reading = 0;
    mutable std::atomic<bool> met = false;
  };
  const Meeting data;
  Loader loader(data, 8, 1, 3);
  loader.Start(InOrder(8), 0, 0, 1, 1);
  CheckMinibatch(loader.Next(), data, 8, InOrder(8), 0);
  CHECK(data.met);
}

TEST_CASE("asking for more minibatches than the pass has is an error, not a wait") {
  const CountingData data(20);
  Loader loader(data, 10, 2);
  CHECK_THROWS_AS(loader.Next(), Error);
  loader.Start(InOrder(20), 0, 1, 2, 2);
  CHECK(loader.Next().number == 1);
  CHECK_THROWS_AS(loader.Next(), Error);
}

TEST_CASE("a pass that does not fit the data is refused") {
  const CountingData data(20);
  Loader loader(data, 10, 2);
  CHECK_THROWS_AS(loader.Start(InOrder(19), 0, 0, 1, 2), Error);
  CHECK_THROWS_AS(loader.Start(InOrder(20), 0, 0, 1, 3), Error);
  CHECK_THROWS_AS(loader.Start(InOrder(20), 0, 0, 0, 2), Error);
  CHECK_THROWS_AS(loader.Start(InOrder(20), 0, -1, 1, 2), Error);
  CHECK_THROWS_AS(loader.SamplesIn(2), Error);
}

TEST_CASE("Start interrupts an earlier pass and nothing of it is left") {
  CountingData data(1000);
  Loader loader(data, 50, 3, GENERATE(1, 4));
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    const std::vector<int64_t> order = EpochOrder(2, epoch, 1000);
    loader.Start(order, epoch, 0, 1, 20);
    for (uint64_t b = 0; b < epoch % 5; ++b) {
      const Minibatch& minibatch = loader.Next();
      REQUIRE(minibatch.number == static_cast<int64_t>(b));
      CheckMinibatch(minibatch, data, 50, order, epoch);
    }
  }
}

TEST_CASE("Start and the destructor do not wait for the rest of a slow minibatch") {
  CountingData data(100000);
  data.slow = true;  // the one minibatch takes over 100 s
  const int threads = GENERATE(1, 4);
  const auto begin = std::chrono::steady_clock::now();
  {
    Loader loader(data, 100000, 1, threads);
    loader.Start(InOrder(100000), 0, 0, 1, 1);
    while (data.reads == 0) std::this_thread::yield();
    loader.Start(InOrder(100000), 0, 0, 1, 1);
  }
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("a data set without samples has no minibatches") {
  const CountingData data(0);
  Loader loader(data, 32, 2);
  CHECK(loader.num_minibatches() == 0);
  loader.Start({}, 0, 0, 1, 0);
  CHECK_THROWS_AS(loader.Next(), Error);
}

TEST_CASE("the counter of allocations counts") {
  const int64_t before = AllocationsOfAllThreads();
  void* memory = ::operator new(100);  // called as a function: no compiler leaves it out
  const int64_t after = AllocationsOfAllThreads();
  ::operator delete(memory);
  CHECK(after - before == 1);
}

TEST_CASE("from the second epoch on, Next and the threads allocate nothing") {
  const TempDir directory;
  WriteIdx(directory, SmallIdx());
  for (const std::string& place : {directory.path(), std::string("synthetic")}) {
    const DataSource source = Open(place, ImageFields({1, 6, 5}, 4));
    Loader loader(*source.train, 8, 2);
    const int64_t end = loader.num_minibatches();
    loader.Start(EpochOrder(1, 0, source.train->size()), 0, 0, 1, end);
    for (int64_t b = 0; b < end; ++b) loader.Next();
    loader.Start(EpochOrder(1, 0, source.train->size()), 0, 0, 1, end);
    const int64_t before = AllocationsOfAllThreads();
    int64_t samples = 0;
    for (int64_t b = 0; b < end; ++b) samples += loader.Next().samples;
    CHECK(AllocationsOfAllThreads() == before);
    CHECK(samples == source.train->size());
  }
}

}  // namespace
}  // namespace pd
