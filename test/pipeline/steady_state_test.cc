// Memory: all of it is taken before the first minibatch, and it is what StageSetup::Memory says.
#include <numeric>

#include "base/error.h"
#include "pipeline/pipelined.h"
#include "pipeline/session.h"
#include "pipeline/steady_state.h"
#include "pipeline/watched_backend.h"
#include "support/catch.h"

namespace pd {
namespace {

Allocations AllocationsInSteadyState(TrainingCase c) {
  Allocations counted;
  c.make_backend = [kind = c.backend](int /*rank*/) {
    return std::make_unique<WatchedBackend>(MakeBackend(kind, 1));
  };
  InSteadyState(
      c, [] { WatchAllocations(true); },
      [&] {
        WatchAllocations(false);
        counted = CountedAllocations();
      });
  return counted;
}

TEST_CASE("nothing is allocated in the steady state") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  // An emulated device keeps its queues on the heap of this process: emulated_steady_test.cc.
  if (MakeBackend(backend, 1)->name().find("emulator") != std::string::npos) return;
  for (const NamedCase& named : SteadyCases(backend)) {
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
