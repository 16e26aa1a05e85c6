#include "pipeline/all_reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "pipeline/session.h"
#include "plan/plan.h"
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

void Add(std::vector<float>& sum, const std::vector<float>& term) {
  for (size_t i = 0; i < term.size(); ++i) sum[i] += term[i];
}

// The definition: each product rounded, then added in replica order, `together` at a time; then
// these sums in their order.
std::vector<float> Expected(size_t index, const Sum& sum, int together) {
  std::vector<std::vector<float>> machines;
  int last = -1;
  for (size_t r = 0; r < sum.weights.size(); ++r) {
    if (sum.weights[r] == 0) continue;
    std::vector<float> product = PartOf(index, static_cast<int>(r), sum.count);
    for (float& value : product) value *= sum.weights[r];
    const int machine = static_cast<int>(r) / together;
    if (machine == last) {
      Add(machines.back(), product);
    } else {
      machines.push_back(product);
    }
    last = machine;
  }
  for (size_t i = 1; i < machines.size(); ++i) Add(machines[0], machines[i]);
  return machines[0];
}

// Counts the bytes of all-reduces that go to each rank.
class Counter final : public Transport {
 public:
  explicit Counter(Transport& under) : sent(static_cast<size_t>(under.size())), under_(under) {}
  int rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  const char* host() const override { return under_.host(); }
  void StartSend(int peer, int tag, const void* data, size_t bytes, Token token) override {
    if (tag >= kTagReduce) sent[static_cast<size_t>(peer)] += bytes;
    largest = std::max(largest, bytes);
    under_.StartSend(peer, tag, data, bytes, token);
  }
  void StartReceive(int peer, int tag, void* data, size_t max_bytes, Token token) override {
    under_.StartReceive(peer, tag, data, max_bytes, token);
  }
  size_t Poll(std::span<Completion> done) override { return under_.Poll(done); }
  void Withdraw() override { under_.Withdraw(); }
  void Abort(int status) override { under_.Abort(status); }

  std::vector<size_t> sent;
  size_t largest = 0;  // of all messages

 private:
  Transport& under_;
};

// Replicas that sum, on machines of so many ranks.
struct Placing {
  int replicas = 0;
  int machine_ranks = 1;
  int together = replicas;  // those that the order of the sum takes together
  int rank(int replica) const { return replicas + machine_ranks - 1 - replica; }
};

// The last replica is on the second machine, those before it on ranks after it; the other ranks
// take no part. Checks every replica's results, and returns the bytes that each sent to each other.
std::vector<std::vector<size_t>> CheckSums(const Placing& placing, const std::vector<Sum>& sums,
                                           size_t max_bytes, size_t eager_bytes = 4096) {
  const int replicas = placing.replicas;
  std::vector<std::vector<float>> expected;
  for (size_t i = 0; i < sums.size(); ++i)
    expected.push_back(Expected(i, sums[i], placing.together));
  std::vector<int> ranks;
  for (int r = 0; r < replicas; ++r) ranks.push_back(placing.rank(r));
  std::vector<std::vector<size_t>> sent(static_cast<size_t>(replicas));
  const auto rank_main = [&](Transport& transport) {
    Counter counter(transport);
    const auto place = std::find(ranks.begin(), ranks.end(), transport.rank());
    {
      const std::unique_ptr<Backend> backend = MakeBackend("ref", 1);
      std::deque<std::vector<float>> data;
      std::deque<ReduceJob> jobs;
      std::unique_ptr<AllReducer> reducer;
      Comm comm(counter, {.report_s = 20, .fail_s = 60});  // ends before the memory above goes
      if (place != ranks.end()) {
        const int me = static_cast<int>(place - ranks.begin());
        reducer = std::make_unique<AllReducer>(comm, *backend, ranks, me, max_bytes,
                                               placing.machine_ranks);
        for (size_t i = 0; i < sums.size(); ++i) {
          data.push_back(PartOf(i, me, sums[i].count));
          ReduceJob& job = jobs.emplace_back();
          job.data = reinterpret_cast<std::byte*>(data.back().data());
          job.bytes = sums[i].count * sizeof(float);
          job.weights = sums[i].weights;
          reducer->Start(job);
        }
        for (size_t i = 0; i < sums.size(); ++i) {
          comm.Wait(jobs[i].done, {.action = "sum"});
          PD_CHECK(std::memcmp(data[i].data(), expected[i].data(), jobs[i].bytes) == 0,
                   "sum {} of {} elements on replica {}", i, sums[i].count, me);
        }
      }
      comm.Barrier();  // nobody leaves with messages under way
    }
    if (place == ranks.end()) return;
    // Open MPI sends so much without asking the receiver first.
    PD_CHECK(counter.largest <= 60 << 10, "a message of {} bytes", counter.largest);
    for (const int rank : ranks) {
      sent[static_cast<size_t>(place - ranks.begin())].push_back(
          counter.sent[static_cast<size_t>(rank)]);
    }
  };
  OnThreads(replicas + placing.machine_ranks, rank_main, eager_bytes);
  return sent;
}

std::vector<float> Shares(int replicas) {
  std::vector<float> weights;
  for (int r = 0; r < replicas; ++r) weights.push_back(1.0F / static_cast<float>(r + 3));
  return weights;
}

// On machines of one worker, and then on p machines of k.
std::vector<Placing> Placings() {
  return {{.replicas = 2},
          {.replicas = 3},
          {.replicas = 4},
          {.replicas = 5},
          {.replicas = 4, .machine_ranks = 2, .together = 2},
          {.replicas = 6, .machine_ranks = 3, .together = 3},
          {.replicas = 6, .machine_ranks = 2, .together = 2},
          {.replicas = 8, .machine_ranks = 4, .together = 4},
          {.replicas = 8, .machine_ranks = 2, .together = 2}};
}

TEST_CASE("replicas hold the sum in replica order, machines' first, rounded each time") {
  const Placing placing = GENERATE(from_range(Placings()));
  std::vector<Sum> sums;
  for (const size_t count : {1, 2, 15, 16, 17, 1000, 4097, 70'001, 700'003}) {
    sums.push_back({count, Shares(placing.replicas)});
  }
  SECTION("room for the largest") { CheckSums(placing, sums, 700'003 * sizeof(float)); }
  SECTION("many small chunks") {
    sums.pop_back();
    CheckSums(placing, sums, 2000);
    CheckSums(placing, sums, 4, 0);
  }
  SECTION("every send waits for its receive") {
    CheckSums(placing, sums, 100'000 * sizeof(float), 0);
  }
}

TEST_CASE("a replica without a minibatch adds nothing, and gets the sum; so do whole machines") {
  const Placing placing = GENERATE(from_range(Placings()));
  std::vector<Sum> sums;
  const auto add = [&](const std::vector<float>& weights) {
    for (const size_t count : {1, 33, 50'001}) sums.push_back({count, weights});
  };
  const std::vector<float> all = Shares(placing.replicas);
  const auto m = all.size(), k = static_cast<size_t>(placing.together);
  for (size_t out = 0; out < m; ++out) {
    std::vector<float> weights = all;
    weights[out] = 0;
    add(weights);
    weights.assign(m, 0);
    weights[out] = 0.3F;  // all but one
    add(weights);
    weights = all;
    std::fill_n(weights.begin() + static_cast<ptrdiff_t>(out), m - out, 0.0F);
    if (out > 0) add(weights);  // a round that is not full
  }
  for (size_t first = 0; k < m && first < m; first += k) {
    std::vector<float> weights = all;
    std::fill_n(weights.begin() + static_cast<ptrdiff_t>(first), k, 0.0F);
    add(weights);
  }
  CheckSums(placing, sums, 20'000);
}

TEST_CASE("a queue of hundreds of sums ends") {
  const Placing placing = GENERATE(Placing{.replicas = 3}, Placing{4, 2, 2});
  std::vector<Sum> sums;
  for (size_t i = 0; i < 300; ++i) sums.push_back({i * 7 % 90, Shares(placing.replicas)});
  CheckSums(placing, sums, 512);
}

TEST_CASE("machines sum inside first where replicas stand on them evenly, one behind the other") {
  CHECK(ReplicasTogether({0, 1, 2, 3}, 2) == 2);
  CHECK(ReplicasTogether({3, 2, 1, 0}, 2) == 2);
  CHECK(ReplicasTogether({0, 1, 2, 3, 4, 5}, 2) == 2);
  CHECK(ReplicasTogether({0, 1, 2, 3, 4, 5}, 3) == 3);
  CHECK(ReplicasTogether({1, 3, 9, 10}, 4) == 2);
  // One on each, or all on one.
  CHECK(ReplicasTogether({0, 1, 2, 3}, 1) == 4);
  CHECK(ReplicasTogether({0, 4, 8}, 4) == 3);
  CHECK(ReplicasTogether({4, 5, 7}, 4) == 3);
  CHECK(ReplicasTogether({7}, 4) == 1);
  // Uneven.
  CHECK(ReplicasTogether({0, 1, 2}, 2) == 3);
  CHECK(ReplicasTogether({1, 2, 3, 4}, 2) == 4);
  CHECK(ReplicasTogether({0, 1, 2, 4}, 4) == 4);
  CHECK(ReplicasTogether({0, 4, 5, 6}, 4) == 4);
  // In another order.
  CHECK(ReplicasTogether({0, 2, 1, 3}, 2) == 4);
  CHECK(ReplicasTogether({0, 1, 4, 5, 2, 3}, 4) == 6);
}

TEST_CASE("replicas that stand unevenly on machines sum in replica order alone") {
  const Placing placing = GENERATE(Placing{3, 2, 3}, Placing{5, 2, 5}, Placing{4, 3, 4});
  CheckSums(placing, {{1000, Shares(placing.replicas)}, {70'001, Shares(placing.replicas)}},
            100'000);
}

TEST_CASE("the bytes on the wire are those of a ring: 2(m-1)/m of the range, each replica") {
  const Placing placing = GENERATE(from_range(Placings()));
  const auto m = static_cast<size_t>(placing.replicas);
  const size_t bytes = 3'000'020;
  for (const size_t max_bytes : {bytes, size_t{400'000}}) {
    const std::vector<std::vector<size_t>> sent =
        CheckSums(placing, {{bytes / sizeof(float), Shares(placing.replicas)}}, max_bytes);
    const double wanted = 2.0 * static_cast<double>((m - 1) * bytes) / static_cast<double>(m);
    // A part begins at a multiple of 64 bytes, in each of the chunks.
    const double chunks =
        std::ceil(static_cast<double>(bytes) / static_cast<double>(max_bytes)) + 3;
    const double slack = 64 * static_cast<double>(m) * chunks;
    size_t all = 0;
    for (const std::vector<size_t>& from : sent) {
      const size_t each = std::accumulate(from.begin(), from.end(), size_t{0});
      CHECK(std::abs(static_cast<double>(each) - wanted) <= slack);
      all += each;
    }
    CHECK(all == 2 * (m - 1) * bytes);
  }
}

TEST_CASE("of them a machine of p sends 2(p-1)/p of the range, and receives as much") {
  const Placing placing = GENERATE(from_range(Placings()));
  const auto m = static_cast<size_t>(placing.replicas), k = static_cast<size_t>(placing.together);
  if (k == m) return;
  const size_t machines = m / k;
  // A multiple of 64 bytes for every part, in each of two chunks: exact.
  const size_t bytes = 2 * m * 6400;
  const std::vector<std::vector<size_t>> sent =
      CheckSums(placing, {{bytes / sizeof(float), Shares(placing.replicas)}}, m * 6400 - m);
  for (size_t machine = 0; machine < machines; ++machine) {
    size_t out = 0, in = 0;
    for (size_t from = 0; from < m; ++from) {
      for (size_t to = 0; to < m; ++to) {
        if (from / k == machine && to / k != machine) out += sent[from][to];
        if (from / k != machine && to / k == machine) in += sent[from][to];
      }
    }
    CHECK(out == 2 * (machines - 1) * bytes / machines);
    CHECK(in == out);
  }
}

}  // namespace
}  // namespace pd
