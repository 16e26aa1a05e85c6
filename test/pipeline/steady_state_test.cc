// Memory: all of it is taken before the first minibatch, and it is what StageSetup::Memory says.
#include <atomic>
#include <numeric>

#include "base/error.h"
#include "pipeline/pipelined.h"
#include "pipeline/session.h"
#include "pipeline/watched_backend.h"
#include "support/catch.h"

namespace pd {
namespace {

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

// Trains 44 minibatches and returns what is allocated while the input stage's first worker goes
// from minibatch 8 to minibatch 28, whatever the other threads do meanwhile.
Allocations AllocationsInSteadyState(const TrainingCase& c) {
  const int ranks = std::accumulate(c.replicas.begin(), c.replicas.end(), 0);
  const RandomData data(44 * 4, {2, 8, 8}, 4, 11);
  Allocations counted;
  OnThreads(ranks, [&](Transport& transport) {
    TakeRequests(transport);
    Session session(c, transport, std::make_unique<WatchedBackend>(MakeBackend(c.backend, 1)));
    const int64_t actions_a_minibatch = 7;
    int64_t action = 0;
    const auto hook = [&] {
      if (transport.rank() != 0) return;
      ++action;
      if (action == 8 / c.replicas[0] * actions_a_minibatch) WatchAllocations(true);
      if (action == 28 / c.replicas[0] * actions_a_minibatch) {
        WatchAllocations(false);
        counted = CountedAllocations();
      }
    };
    session.Train(data, 44 * 4, hook);
    PD_CHECK(transport.rank() != 0 || action > 28 / c.replicas[0] * actions_a_minibatch,
             "{} actions", action);
  });
  return counted;
}

std::vector<NamedCase> Cases(const std::string& backend) {
  std::vector<NamedCase> cases;
  for (NamedCase& named : OracleCases(backend)) {
    if (named.name != "2-1" && named.name != "1-1-1" && named.name != "2-3-1") continue;
    named.c.segments = {44 * 4};
    cases.push_back(std::move(named));
  }
  PD_CHECK(cases.size() == 3, "{} cases", cases.size());
  return cases;
}

TEST_CASE("nothing is allocated in the steady state") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  // An emulated device keeps its queues on the heap of this process.
  if (MakeBackend(backend, 1)->name().find("emulator") != std::string::npos) return;
  for (const NamedCase& named : Cases(backend)) {
    INFO(backend << " " << named.name);
    const Allocations counted = AllocationsInSteadyState(named.c);
    CHECK(counted.ours == 0);
    if (backend == "ref") CHECK(counted.kernels == 0);
    INFO("kernels: " << counted.kernels);
    // oneDNN's own, a few an execute: fewer than 12 a call of the 36 of a minibatch.
    CHECK(counted.kernels < 20 * 36 * 12);
  }
}

TEST_CASE("the watch sees allocations while it is on") {
  // Through pointers, so that no compiler leaves the calls out.
  void* (*volatile allocate)(size_t) = &::operator new;
  void* (*volatile allocate_aligned)(size_t, std::align_val_t) = &::operator new;
  WatchAllocations(true);
  ::operator delete(allocate(8));
  ::operator delete (allocate_aligned(64, std::align_val_t{64}), std::align_val_t{64});
  WatchAllocations(false);
  ::operator delete(allocate(8));
  CHECK(CountedAllocations().ours == 2);
}

TEST_CASE("a worker takes the memory that its setup announces") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const double momentum = GENERATE(0.0, 0.9);
  for (NamedCase named : OracleCases(backend)) {
    named.c.momentum = momentum;
    const Model model = Model::Parse(JsonView::Parse(named.c.model, "model"));
    const Cut cut = named.c.stages.empty() ? MakeWholeCut(model) : MakeCut(model, named.c.stages);
    const PipelineSpec spec = SpecOf(named.c, model, cut);
    const int ranks = std::accumulate(named.c.replicas.begin(), named.c.replicas.end(), 0);
    std::vector<size_t> taken(static_cast<size_t>(ranks)), said(taken);
    OnThreads(ranks, [&](Transport& transport) {
      auto mine = std::make_unique<WatchedBackend>(MakeBackend(named.c.backend, 1));
      const WatchedBackend& watched = *mine;
      Session session(named.c, transport, std::move(mine));
      taken[static_cast<size_t>(transport.rank())] = watched.allocated_bytes();
      said[static_cast<size_t>(transport.rank())] = session.worker().setup().Memory(spec).total();
    });
    INFO(named.c.backend << " " << named.name);
    CHECK(taken == said);
  }
}

}  // namespace
}  // namespace pd
