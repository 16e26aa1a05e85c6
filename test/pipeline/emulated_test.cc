// The runtime on the cuda backend, whose device is emulated: under many orders of its work.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "pipeline/edges.h"
#include "pipeline/emulated.h"
#include "support/catch.h"

namespace pd {
namespace {

using cuda_emulator::Mode;
using cuda_emulator::Policy;

std::unique_ptr<Backend> CudaBackend(int /*rank*/) { return MakeBackend("cuda", 1); }

DeviceOrder Order(const std::string& name, const cuda_emulator::Schedule& schedule) {
  return {.name = name,
          .make = CudaBackend,
          .begin = [schedule] { cuda_emulator::SetSchedule(schedule); },
          .end = Misuses};
}

// Twenty: of each policy with seeds of its own, and streams that run freely with random delays.
std::vector<DeviceOrder> Orders() {
  std::vector<DeviceOrder> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    constexpr Policy kPolicies[] = {Policy::kEager, Policy::kLazy, Policy::kRandom,
                                    Policy::kPriority};
    cuda_emulator::Schedule schedule{
        .mode = Mode::kScheduled, .policy = kPolicies[seed % 5 % 4], .seed = seed};
    if (seed % 5 == 4) schedule = {.mode = Mode::kFree, .seed = seed, .delay_us = 200};
    orders.push_back(Order(fmt::format("order {}", seed), schedule));
  }
  return orders;
}

TEST_CASE("twenty orders of an emulated GPU's work train as the serial run on it, bit for bit") {
  const RandomData data = OracleData();
  for (const NamedCase& named : OracleCases("cuda")) {
    const std::string_view plans[] = {"1", "2", "1-1", "1-1-1", "2-1", "1-2"};
    if (std::find(std::begin(plans), std::end(plans), named.name) == std::end(plans)) continue;
    Scenario scenario{named.name, named.c, nullptr, {}};
    scenario.c.segments = {7 * 4 - 1, 3 * 4 + 2};
    scenario.c.evaluations = {18};
    cuda_emulator::SetSchedule({});
    scenario.wanted = TrainSerially(scenario.c, data);
    for (const DeviceOrder& order : Orders()) {
      INFO(named.name << ", " << order.name);
      CHECK(Fault(scenario, order) == "");
    }
  }
}

// Two minibatches in flight share one arena there.
TEST_CASE("a stage with losses that recomputes on an emulated GPU trains as the serial run") {
  for (const NamedCase& named : OracleCases("cuda")) {
    if (named.name != "1-1 deeper") continue;
    Scenario scenario{named.name, named.c, nullptr, {}};
    scenario.c.segments = {7 * 4 - 1};
    scenario.c.evaluations = {};
    scenario.c.recompute = {true, true};
    cuda_emulator::SetSchedule({});
    scenario.wanted = TrainSerially(scenario.c, OracleData());
    for (const DeviceOrder& order : Orders()) {
      INFO(order.name);
      CHECK(Fault(scenario, order) == "");
    }
  }
}

TEST_CASE("messages from and to an emulated GPU's memory train the same") {
  for (const Scenario& scenario : EdgeScenarios("cuda", CopyAnywhere)) {
    if (scenario.copy == nullptr) continue;
    for (const DeviceOrder& order : Orders()) {
      INFO(scenario.name << ", " << order.name);
      CHECK(Fault(scenario, order) == "");
    }
  }
}

TEST_CASE("training on an emulated GPU stays near training on the host") {
  const RandomData data = OracleData();
  cuda_emulator::SetSchedule({});
  const auto cases = OracleCases("cuda");
  const auto host_cases = OracleCases("ref");
  for (const size_t i : {size_t{0}, size_t{2}, size_t{6}}) {
    TrainingCase c = cases[i].c, host = host_cases[i].c;
    c.segments = host.segments = {7 * 4 - 1, 3 * 4 + 2};
    const TrainingResult got = TrainOnThreads(c, data);
    for (const auto& [name, values] : TrainOnThreads(host, data)) {
      float largest = 0, difference = 0;
      for (size_t k = 0; k < values.size(); ++k) {
        largest = std::max(largest, std::abs(values[k]));
        difference = std::max(difference, std::abs(values[k] - got.at(name)[k]));
      }
      INFO(cases[i].name << " " << name << " " << largest);
      // Sums of a few hundred f32 products in another order, over ten steps. A bias in front of
      // batch norm has a gradient of zero, but for rounding.
      CHECK(difference <= 1e-4F * largest + 1e-6F);
    }
  }
}

// The other workers go on sending until they hear of it, and the device does what is queued.
TEST_CASE("whichever call fails, the run ends with an error and leaves nothing behind") {
  cuda_emulator::SetSchedule({.mode = Mode::kFree, .delay_us = 50});
  const DeviceOrder order{.name = "", .make = CudaBackend, .begin = {}, .end = {}};
  for (const Scenario& scenario : EdgeScenarios("cuda", CopyAnywhere)) {
    const uint64_t before = cuda_emulator::CallCount();
    CHECK(Fault(scenario, order) == "");
    const uint64_t calls = cuda_emulator::CallCount() - before;
    const uint64_t step = calls / 20;
    int faults = 0;
    for (uint64_t n = 1 + step / 2; n < calls; n += step) {
      INFO(scenario.name << ", call " << n << " of " << calls);
      cuda_emulator::FailCall(n);
      const std::string fault = Fault(scenario, order);
      CHECK(cuda_emulator::CallFailed());
      cuda_emulator::FailCall(0);
      if (!fault.empty()) ++faults;
      CHECK(cuda_emulator::Leaks() == std::vector<std::string>{});
      CHECK(Misuses() == "");
    }
    // Not all: what fails while things are destroyed is only warned of, and an algorithm that does
    // not tell its workspace is passed over.
    CHECK(faults >= 10);
  }
}

// A test of its own in ctest, since it takes as long as all others here: hidden from their run.
TEST_CASE("each edge is needed on an emulated GPU", "[.mutation]") {
  const auto orders = [](int attempt) {
    std::vector<DeviceOrder> all;
    const auto seed = static_cast<uint64_t>(attempt) * 100;
    all.push_back(Order("lazy", {.mode = Mode::kScheduled, .policy = Policy::kLazy, .seed = seed}));
    for (uint64_t s = 1; s <= 4; ++s) {
      all.push_back(Order(
          "priority", {.mode = Mode::kScheduled, .policy = Policy::kPriority, .seed = seed + s}));
    }
    all.push_back(
        Order("random", {.mode = Mode::kScheduled, .policy = Policy::kRandom, .seed = seed}));
    all.push_back(Order("free", {.mode = Mode::kFree, .seed = seed, .delay_us = 500}));
    return all;
  };
  CheckEdges(EdgeScenarios("cuda", CopyAnywhere), orders);
}

}  // namespace
}  // namespace pd
