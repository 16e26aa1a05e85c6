#include "pipeline/edges.h"

#include <mutex>

#include "base/error.h"
#include "support/catch.h"
#include "support/forwarding_backend.h"

namespace pd {
namespace {

std::string NameOf(const Edge& edge) {
  const char* const calls[] = {"Record", "Wait", "WaitOnHost", "Notify"};
  return fmt::format("{} for {}", calls[static_cast<int>(edge.call)], edge.purpose);
}

// The edges that a run has, of all workers.
class Edges {
 public:
  void Add(const Edge& edge) {
    const std::lock_guard lock(mutex_);
    all_.insert(edge);
  }
  const std::set<Edge>& all() const { return all_; }

 private:
  std::mutex mutex_;
  std::set<Edge> all_;
};

// Leaves out the calls of one edge; a notice comes at once instead.
class EdgeBackend final : public ForwardingBackend {
 public:
  EdgeBackend(std::unique_ptr<Backend> backend, Edges* seen, const Edge* without)
      : ForwardingBackend(std::move(backend)), seen_(seen), without_(without) {}

  void Record(Queue queue, Mark& mark, const char* purpose) override {
    if (Has({Edge::Call::kRecord, purpose})) inner().Record(queue, mark, purpose);
  }
  void Wait(Queue queue, const Mark& mark, const char* purpose) override {
    if (Has({Edge::Call::kWait, purpose})) inner().Wait(queue, mark, purpose);
  }
  void WaitOnHost(const Mark& mark, const char* purpose) override {
    if (Has({Edge::Call::kWaitOnHost, purpose})) inner().WaitOnHost(mark, purpose);
  }
  void Notify(Queue queue, Notice notice, void* context) override {
    const char* name = queue == Queue::kUpload ? "uploads" : "downloads";
    if (Has({Edge::Call::kNotify, name})) {
      inner().Notify(queue, notice, context);
    } else {
      notice(context);
    }
  }

 private:
  bool Has(const Edge& edge) {
    if (seen_ != nullptr) seen_->Add(edge);
    return without_ == nullptr || !(edge == *without_);
  }
  Edges* seen_;
  const Edge* without_;
};

std::string FaultWithout(const Scenario& scenario, const DeviceOrder& order, Edges* seen,
                         const Edge* without) {
  TrainingCase c = scenario.c;
  c.make_backend = [&](int rank) {
    return std::make_unique<EdgeBackend>(order.make(rank), seen, without);
  };
  if (order.begin) order.begin();
  std::string fault;
  try {
    // No message leaves before it is received: eager copies would be made on the host.
    const size_t eager_bytes = scenario.copy == nullptr ? 4096 : 0;
    fault =
        Difference(TrainOnThreads(c, OracleData(), eager_bytes, scenario.copy), scenario.wanted);
  } catch (const Error& e) {
    fault = e.what();
  }
  const std::string refused = order.end ? order.end() : "";
  return fault.empty() ? refused : fault;
}

bool IsNeeded(const Edge& edge, const std::vector<Scenario>& scenarios,
              const std::function<std::vector<DeviceOrder>(int attempt)>& orders) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    for (const Scenario& scenario : scenarios) {
      if (scenario.edges.count(edge) == 0) continue;
      for (const DeviceOrder& order : orders(attempt)) {
        if (!FaultWithout(scenario, order, nullptr, &edge).empty()) return true;
      }
    }
  }
  return false;
}

}  // namespace

std::vector<Scenario> EdgeScenarios(const std::string& backend, LoopbackHub::Copy copy) {
  std::vector<Scenario> scenarios;
  const RandomData data = OracleData();
  for (NamedCase& named : OracleCases(backend)) {
    if (named.name != "2-1" && named.name != "1-1-1" && named.name != "1-2") continue;
    named.c.segments = {7 * 4 - 1, 3 * 4 + 2};
    named.c.evaluations = {18};
    Scenario scenario{named.name, named.c, nullptr, TrainSerially(named.c, data)};
    scenarios.push_back(scenario);
    if (named.name != "1-1-1") continue;
    scenario.name += " direct";
    scenario.copy = copy;
    scenarios.push_back(scenario);
  }
  return scenarios;
}

std::string Fault(const Scenario& scenario, const DeviceOrder& order) {
  return FaultWithout(scenario, order, nullptr, nullptr);
}

void CheckEdges(std::vector<Scenario> scenarios,
                const std::function<std::vector<DeviceOrder>(int attempt)>& orders) {
  std::set<Edge> all;
  for (Scenario& scenario : scenarios) {
    Edges seen;
    for (const DeviceOrder& order : orders(0)) {
      INFO(scenario.name << ", " << order.name);
      CHECK(FaultWithout(scenario, order, &seen, nullptr) == "");
    }
    scenario.edges = seen.all();
    all.insert(seen.all().begin(), seen.all().end());
  }
  CHECK(all.size() >= 20);
  for (const Edge& edge : all) {
    // Without it, notices come to a worker that is gone: what breaks then is the process.
    if (edge.purpose == "end") continue;
    INFO("without " << NameOf(edge));
    CHECK(IsNeeded(edge, scenarios, orders));
  }
}

}  // namespace pd
