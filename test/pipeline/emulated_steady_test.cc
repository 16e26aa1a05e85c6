// The steady state on the cuda backend, whose device is emulated: no memory of the host, of the
// device or pinned is taken, no handle made, and nobody waits for all of a stream or of the device.
#include "pipeline/emulated.h"
#include "pipeline/steady_state.h"
#include "pipeline/watched_backend.h"
#include "support/catch.h"

namespace pd {
namespace {

struct Counts {
  int64_t heap = 0;
  uint64_t memory = 0, handles = 0, drains = 0, calls = 0;
};

Counts CountedSoFar() {
  const Allocations heap = CountedAllocations();
  return {.heap = heap.ours + heap.kernels,
          .memory = cuda_emulator::AllocationCount(),
          .handles = cuda_emulator::HandleCount(),
          .drains = cuda_emulator::DrainCount(),
          .calls = cuda_emulator::CallCount()};
}

Counts InSteadyStateOf(TrainingCase c, LoopbackHub::Copy copy,
                       std::unique_ptr<Backend> (*make)(int rank)) {
  c.make_backend = [make](int rank) { return std::make_unique<WatchedBackend>(make(rank)); };
  IgnoreAllocationsWhile(cuda_emulator::IsInside);
  Counts counts;
  const auto begin = [&] {
    counts = CountedSoFar();
    WatchAllocations(true);
  };
  const auto end = [&] {
    WatchAllocations(false);
    const Counts now = CountedSoFar();
    counts = {.heap = now.heap,
              .memory = now.memory - counts.memory,
              .handles = now.handles - counts.handles,
              .drains = now.drains - counts.drains,
              .calls = now.calls - counts.calls};
  };
  InSteadyState(c, begin, end, copy);
  return counts;
}

TEST_CASE("the steady state on an emulated GPU allocates nothing and drains no stream") {
  cuda_emulator::SetSchedule({});
  const auto make = [](int /*rank*/) { return MakeBackend("cuda", 1); };
  for (const NamedCase& named : SteadyCases("cuda")) {
    for (const LoopbackHub::Copy copy : {LoopbackHub::Copy{nullptr}, &CopyAnywhere}) {
      INFO(named.name << (copy == nullptr ? "" : " direct"));
      const Counts counts = InSteadyStateOf(named.c, copy, make);
      CHECK(counts.heap == 0);
      CHECK(counts.memory == 0);
      CHECK(counts.handles == 0);
      CHECK(counts.drains == 0);
      CHECK(counts.calls > 1000);
      CHECK(Misuses() == "");
    }
  }
}

enum class Waste { kHeap, kMemory, kHandle, kDrain };

// Does in each update what a steady state must not do.
template <Waste kWaste>
class WastefulBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  void Sgd(const SgdArgs& args) override {
    ForwardingBackend::Sgd(args);
    switch (kWaste) {
      case Waste::kHeap:
        heap_.emplace_back(1);
        break;
      case Waste::kMemory:
        inner().AllocateStaging(4);
        break;
      case Waste::kHandle:
        inner().MakeMark();
        break;
      case Waste::kDrain:
        float value = 0;
        inner().ToHost(DenseLayout({1}, DType::kF32), args.g, &value);
        break;
    }
  }

 private:
  std::vector<std::vector<int>> heap_;
};

template <Waste kWaste>
Counts CountsOf() {
  TrainingCase c = SteadyCases("cuda").at(0).c;
  return InSteadyStateOf(c, nullptr, [](int /*rank*/) -> std::unique_ptr<Backend> {
    return std::make_unique<WastefulBackend<kWaste>>(MakeBackend("cuda", 1));
  });
}

TEST_CASE("the counts of a steady state see each kind of waste") {
  cuda_emulator::SetSchedule({});
  CHECK(CountsOf<Waste::kHeap>().heap > 0);
  CHECK(CountsOf<Waste::kMemory>().memory > 0);
  CHECK(CountsOf<Waste::kHandle>().handles > 0);
  CHECK(CountsOf<Waste::kDrain>().drains > 0);
  CHECK(Misuses() == "");
}

}  // namespace
}  // namespace pd
