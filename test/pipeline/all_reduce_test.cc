#include "pipeline/all_reduce.h"

#include <cmath>
#include <cstring>
#include <deque>

#include "base/error.h"
#include "base/random.h"
#include "pipeline/session.h"
#include "support/catch.h"

namespace pd {
namespace {

struct Sum {
  size_t count = 0;  // elements
  std::vector<float> weights;
};

std::vector<float> PartOf(size_t sum, int replica, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const auto bits = Philox(sum, static_cast<uint64_t>(replica), i);
    // Magnitudes far apart, so that every other order of the sum rounds differently.
    values[i] = (ToUniform(bits[0]) - 0.5F) * static_cast<float>(1U << (bits[1] % 20));
  }
  return values;
}

// The definition: each product rounded, then added in replica order.
std::vector<float> Expected(size_t index, const Sum& sum) {
  std::vector<float> total(sum.count);
  bool first = true;
  for (size_t r = 0; r < sum.weights.size(); ++r) {
    if (sum.weights[r] == 0) continue;
    const std::vector<float> part = PartOf(index, static_cast<int>(r), sum.count);
    for (size_t i = 0; i < sum.count; ++i) {
      const float product = part[i] * sum.weights[r];
      total[i] = first ? product : total[i] + product;
    }
    first = false;
  }
  return total;
}

// Replica i is rank `replicas` - i; rank 0 takes no part. Checks every replica's results, and
// returns the bytes that each replica sent.
std::vector<int64_t> CheckSums(int replicas, const std::vector<Sum>& sums, size_t max_bytes,
                               size_t eager_bytes = 4096) {
  std::vector<std::vector<float>> expected;
  for (size_t i = 0; i < sums.size(); ++i) expected.push_back(Expected(i, sums[i]));
  std::vector<int> ranks;
  for (int r = 0; r < replicas; ++r) ranks.push_back(replicas - r);
  std::vector<int64_t> sent(static_cast<size_t>(replicas));
  const auto rank_main = [&](Transport& transport) {
    Comm comm(transport, {.report_s = 20, .fail_s = 60});
    if (comm.rank() > 0) {
      const int me = replicas - comm.rank();
      const std::unique_ptr<Backend> backend = MakeBackend("ref", 1);
      AllReducer reducer(comm, *backend, ranks, me, max_bytes);
      std::deque<std::vector<float>> data;
      std::deque<ReduceJob> jobs;
      for (size_t i = 0; i < sums.size(); ++i) {
        data.push_back(PartOf(i, me, sums[i].count));
        ReduceJob& job = jobs.emplace_back();
        job.data = reinterpret_cast<std::byte*>(data.back().data());
        job.bytes = sums[i].count * sizeof(float);
        job.weights = sums[i].weights;
        reducer.Start(job);
      }
      for (size_t i = 0; i < sums.size(); ++i) {
        comm.Wait(jobs[i].done, {.action = "sum"});
        PD_CHECK(std::memcmp(data[i].data(), expected[i].data(), jobs[i].bytes) == 0,
                 "sum {} of {} elements on replica {}", i, sums[i].count, me);
      }
      sent[static_cast<size_t>(me)] = comm.bytes_sent();
    }
    comm.Barrier();  // nobody leaves with messages under way
  };
  OnThreads(replicas + 1, rank_main, eager_bytes);
  return sent;
}

std::vector<float> Shares(int replicas) {
  std::vector<float> weights;
  for (int r = 0; r < replicas; ++r) weights.push_back(1.0F / static_cast<float>(r + 3));
  return weights;
}

TEST_CASE("replicas hold the sum in replica order, each product rounded, bit for bit") {
  const int replicas = GENERATE(2, 3, 4, 5);
  std::vector<Sum> sums;
  for (const size_t count : {1, 2, 15, 16, 17, 1000, 4097, 70'001, 1'300'003}) {
    sums.push_back({count, Shares(replicas)});
  }
  SECTION("room for the largest") { CheckSums(replicas, sums, 1'300'003 * sizeof(float)); }
  SECTION("many small chunks") {
    sums.pop_back();
    CheckSums(replicas, sums, 2000);
    CheckSums(replicas, sums, 4, 0);
  }
  SECTION("every send waits for its receive") {
    CheckSums(replicas, sums, 100'000 * sizeof(float), 0);
  }
}

TEST_CASE("a replica without a minibatch adds nothing, and gets the sum") {
  const int replicas = GENERATE(2, 3, 5);
  std::vector<Sum> sums;
  for (int out = 0; out < replicas; ++out) {
    for (const size_t count : {1, 33, 50'001}) {
      sums.push_back({count, Shares(replicas)});
      sums.back().weights[static_cast<size_t>(out)] = 0;
      sums.push_back({count, std::vector<float>(static_cast<size_t>(replicas), 0.0F)});
      sums.back().weights[static_cast<size_t>(out)] = 0.3F;  // all but one
    }
  }
  CheckSums(replicas, sums, 20'000);
}

TEST_CASE("a queue of hundreds of sums ends") {
  std::vector<Sum> sums;
  for (size_t i = 0; i < 300; ++i) sums.push_back({i * 7 % 90, Shares(3)});
  CheckSums(3, sums, 512);
}

TEST_CASE("the bytes on the wire are those of a ring: 2(m-1)/m of the range, each replica") {
  const int replicas = GENERATE(2, 3, 4, 5);
  const size_t bytes = 3'000'020;
  for (const size_t max_bytes : {bytes, size_t{400'000}}) {
    const std::vector<int64_t> sent =
        CheckSums(replicas, {{bytes / sizeof(float), Shares(replicas)}}, max_bytes);
    const double wanted = 2.0 * (replicas - 1) / replicas * static_cast<double>(bytes);
    // A part begins at a multiple of 64 bytes, in each of the chunks.
    const double chunks =
        std::ceil(static_cast<double>(bytes) / static_cast<double>(max_bytes)) + 3;
    const double slack = 64 * replicas * chunks;
    int64_t all = 0;
    for (const int64_t each : sent) {
      CHECK(std::abs(static_cast<double>(each) - wanted) <= slack);
      all += each;
    }
    CHECK(all == static_cast<int64_t>(2 * static_cast<size_t>(replicas - 1) * bytes));
  }
}

}  // namespace
}  // namespace pd
