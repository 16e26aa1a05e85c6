// The runtime on backends whose calls only queue work, whose memory is not the host's.
#include <algorithm>
#include <cstring>

#include "pipeline/deferred_backend.h"
#include "pipeline/pipelined.h"
#include "support/catch.h"

namespace pd {
namespace {

void CheckEqual(const TrainingResult& got, const TrainingResult& wanted) {
  CHECK(Difference(got, wanted) == "");
}

void CopyOnHost(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

TrainingCase Deferred(TrainingCase c, DeferredPolicy policy) {
  c.make_backend = [policy](int /*rank*/) {
    return std::make_unique<DeferredBackend>(MakeBackend("ref", 1), policy);
  };
  return c;
}

std::vector<DeferredPolicy> Policies() {
  std::vector<DeferredPolicy> policies;
  std::array<Queue, 3> order{Queue::kCompute, Queue::kUpload, Queue::kDownload};
  do {
    policies.push_back({.order = order, .patience_us = 50, .last_patience_us = 500});
  } while (std::next_permutation(order.begin(), order.end()));
  for (uint64_t seed = 1; seed <= 3; ++seed) policies.push_back({.any = true, .seed = seed});
  return policies;
}

std::vector<NamedCase> SomeCases() {
  std::vector<NamedCase> cases;
  for (NamedCase& named : OracleCases("ref")) {
    const std::string_view wanted[] = {"1",          "2", "1-1-1", "2-1", "1-2", "2-3-1 deeper",
                                       "2-1-2 skips"};
    if (std::find(std::begin(wanted), std::end(wanted), named.name) == std::end(wanted)) continue;
    named.c.segments = {9 * 4 - 1, 5 * 4 + 2};
    named.c.evaluations = {18};
    cases.push_back(std::move(named));
  }
  return cases;
}

TEST_CASE("a device that lags behind trains as the serial run on the host does, bit for bit") {
  const RandomData data = OracleData();
  for (const NamedCase& named : SomeCases()) {
    const TrainingResult wanted = TrainSerially(named.c, data);
    for (const DeferredPolicy& policy : Policies()) {
      INFO(named.name << " order " << static_cast<int>(policy.order[0])
                      << static_cast<int>(policy.order[1]) << static_cast<int>(policy.order[2])
                      << (policy.any ? " any" : "") << " seed " << policy.seed);
      CheckEqual(TrainOnThreads(Deferred(named.c, policy), data), wanted);
    }
  }
}

TEST_CASE("messages from and to a device's memory train the same") {
  const RandomData data = OracleData();
  for (const NamedCase& named : SomeCases()) {
    INFO(named.name);
    const TrainingResult wanted = TrainSerially(named.c, data);
    CheckEqual(TrainOnThreads(named.c, data, 4096, CopyOnHost), wanted);
    for (const DeferredPolicy& policy : Policies()) {
      CheckEqual(TrainOnThreads(Deferred(named.c, policy), data, policy.any ? 0 : 4096, CopyOnHost),
                 wanted);
    }
  }
}

TEST_CASE("stages that recompute train the same as those that keep their activations") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const RandomData data = OracleData();
  for (NamedCase& named : OracleCases(backend)) {
    named.c.segments = {9 * 4 - 1, 5 * 4 + 2};
    named.c.evaluations = {18};
    const TrainingResult wanted = TrainSerially(named.c, data);
    INFO(backend << " " << named.name);
    named.c.recompute.assign(named.c.replicas.size(), true);
    CheckEqual(TrainOnThreads(named.c, data), wanted);
    named.c.recompute[0] = false;
    CheckEqual(TrainOnThreads(named.c, data), wanted);
    if (backend != "ref") continue;
    named.c.recompute.assign(named.c.replicas.size(), true);
    CheckEqual(
        TrainOnThreads(Deferred(named.c, {.patience_us = 300, .last_patience_us = 300}), data),
        wanted);
  }
}

}  // namespace
}  // namespace pd
