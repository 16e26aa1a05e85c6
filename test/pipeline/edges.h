#pragma once

#include <compare>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "pipeline/pipelined.h"

namespace pd {

/// One kind of edge between a device's queues, the host and the communication thread.
struct Edge {
  enum class Call { kRecord, kWait, kWaitOnHost, kNotify };
  Call call = Call::kRecord;
  std::string purpose;  ///< Of a notice: its queue.

  auto operator<=>(const Edge&) const = default;
};

/// A device under some order of its work.
struct DeviceOrder {
  std::string name;
  std::function<std::unique_ptr<Backend>(int rank)> make;
  std::function<void()> begin;       ///< Before a run; may be empty.
  std::function<std::string()> end;  ///< After it: what the device refused, or ""; may be empty.
};

/// A training run, how its messages go, and what it must come to.
struct Scenario {
  std::string name;
  TrainingCase c;
  LoopbackHub::Copy copy = nullptr;
  TrainingResult wanted;
  std::set<Edge> edges = {};  ///< That the run has; filled by CheckEdges.
};

/// Plans with replicas, with several stages, and with messages from and to the device's memory
/// (by `copy`); `backend` makes the serial run that they must equal.
std::vector<Scenario> EdgeScenarios(const std::string& backend, LoopbackHub::Copy copy);

/// What is wrong with a run, or "".
std::string Fault(const Scenario& scenario, const DeviceOrder& order);

/// Checks that the scenarios run under all orders, and that without any one edge some go wrong
/// under some order. `orders`: in the `attempt`-th of three tries, for what depends on time.
void CheckEdges(std::vector<Scenario> scenarios,
                const std::function<std::vector<DeviceOrder>(int attempt)>& orders);

}  // namespace pd
