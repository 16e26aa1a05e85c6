#include "pipeline/steady_state.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "pipeline/session.h"

namespace pd {
namespace {

constexpr int64_t kSamples = 44 * 4;

// A loopback keeps its requests; takes as many as will ever be under way at once.
void TakeRequests(Transport& transport) {
  constexpr size_t kRequests = 500;
  std::vector<char> bytes(kRequests);
  std::vector<Transport::Completion> done(64);
  for (char& byte : bytes) {
    transport.StartReceive(transport.rank(), 1000, &byte, 1, nullptr);
  }
  for (char& byte : bytes) transport.StartSend(transport.rank(), 1000, &byte, 1, nullptr);
  for (size_t left = 2 * kRequests; left > 0;) left -= transport.Poll(done);
}

}  // namespace

void InSteadyState(const TrainingCase& c, const std::function<void()>& begin,
                   const std::function<void()>& end, LoopbackHub::Copy copy) {
  const int ranks = std::accumulate(c.replicas.begin(), c.replicas.end(), 0);
  const RandomData data(kSamples, {2, 8, 8}, 4, 11);
  const auto rank_main = [&](Transport& transport) {
    TakeRequests(transport);
    Session session(c, transport);
    const int64_t actions_a_minibatch = 7;
    int64_t action = 0;
    const auto hook = [&] {
      if (transport.rank() != 0) return;
      ++action;
      if (action == 8 / c.replicas[0] * actions_a_minibatch) begin();
      if (action == 28 / c.replicas[0] * actions_a_minibatch) end();
    };
    session.Train(data, kSamples, hook);
    PD_CHECK(transport.rank() != 0 || action > 28 / c.replicas[0] * actions_a_minibatch,
             "{} actions", action);
  };
  OnThreads(ranks, rank_main, LoopbackHub::kDefaultEagerBytes, copy);
}

std::vector<NamedCase> SteadyCases(const std::string& backend) {
  std::vector<NamedCase> cases;
  const std::string_view wanted[] = {"2-1", "1-1-1", "2-3-1", "4-1 on machines of 2"};
  for (NamedCase& named : OracleCases(backend)) {
    if (std::find(std::begin(wanted), std::end(wanted), named.name) == std::end(wanted)) continue;
    named.c.segments = {kSamples};
    cases.push_back(std::move(named));
  }
  PD_CHECK(cases.size() == std::size(wanted), "{} cases", cases.size());
  return cases;
}

}  // namespace pd
