// Every edge between the queues of a device, the host and the communication thread is needed: a
// runtime that leaves out any one of them goes wrong under some order of the device's work.
#include <cstring>

#include "pipeline/deferred_backend.h"
#include "pipeline/edges.h"
#include "support/catch.h"

namespace pd {
namespace {

DeviceOrder Deferred(const std::string& name, DeferredPolicy policy, int laggard = -1) {
  const auto make = [policy, laggard](int rank) {
    DeferredPolicy work = policy;
    if (laggard >= 0 && laggard != rank) work.last_patience_us = 0;
    return std::make_unique<DeferredBackend>(MakeBackend("ref", 1), work);
  };
  return {.name = name, .make = make, .begin = {}, .end = {}};
}

// Each queue behind the others in turn, on all ranks or on one. How far it lags is a matter of
// time, and other programs may be slower still: so it grows.
std::vector<DeviceOrder> Orders(int attempt) {
  constexpr int kLagUs[] = {2'000, 10'000, 50'000};
  const int lag_us = kLagUs[attempt];
  constexpr Queue c = Queue::kCompute, u = Queue::kUpload, d = Queue::kDownload;
  const auto all = [&](std::array<Queue, 3> order) {
    return DeferredPolicy{.order = order, .patience_us = 50, .last_patience_us = lag_us};
  };
  const DeferredPolicy alone{.order = {u, d, c}, .last_patience_us = lag_us};
  return {
      Deferred("kernels lag", all({u, d, c})),     Deferred("uploads lag", all({c, d, u})),
      Deferred("downloads lag", all({c, u, d})),   Deferred("kernels of rank 1 lag", alone, 1),
      Deferred("kernels of rank 2 lag", alone, 2), Deferred("any order", {.any = true, .seed = 1})};
}

TEST_CASE("each edge between queues, host and communication is needed") {
  const auto copy = [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); };
  CheckEdges(EdgeScenarios("ref", copy), Orders);
}

}  // namespace
}  // namespace pd
