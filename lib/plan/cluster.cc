#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "plan/layer_costs.h"
#include "plan/plan.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;

Cluster::Level ReadLevel(const JsonView& json) {
  json.CheckKeys({"workers", "bandwidth_bytes_per_s", "latency_ms"});
  Cluster::Level level;
  level.workers = static_cast<int>(json.At("workers").Int(1, kMaxWorkers));
  level.bandwidth_bytes_per_s =
      json.At("bandwidth_bytes_per_s").Number(1, kUnlimitedBytesPerSecond);
  level.latency_ms = json.At("latency_ms").Number(0, kMaxMs);
  return level;
}

}  // namespace

int Cluster::workers() const {
  int workers = 1;
  for (const Level& level : levels) workers *= level.workers;
  return workers;
}

int Cluster::machine_workers() const {
  for (const Level& level : levels) {
    if (level.workers > 1) return level.workers;
  }
  return 1;
}

size_t ReplicasTogether(const std::vector<int>& workers, int machine_workers) {
  const auto machine = [&](size_t replica) { return workers[replica] / machine_workers; };
  size_t together = 1;
  while (together < workers.size() && machine(together) == machine(0)) ++together;
  std::set<int> machines;
  for (size_t r = 0; r < workers.size(); ++r) {
    if (machine(r) != machine(r / together * together)) return workers.size();
    machines.insert(machine(r));
  }
  const bool even = machines.size() * together == workers.size();
  return even && together > 1 ? together : workers.size();
}

Cluster ReadCluster(const JsonView& json) {
  CheckFormat(json, "cluster");
  json.CheckKeys({"format", "levels", "memory_bytes", "speeds"});
  Cluster cluster;
  const JsonView levels = json.At("levels");
  int64_t workers = 1;
  for (const JsonView& level : levels.Items()) {
    cluster.levels.push_back(ReadLevel(level));
    workers *= cluster.levels.back().workers;
    if (workers > kMaxWorkers) {
      levels.Fail(fmt::format("at most {} workers in all", kMaxWorkers), "more");
    }
  }
  if (cluster.levels.empty()) levels.Fail("one or more levels", "none");
  if (const auto memory = json.Find("memory_bytes"))
    cluster.memory_bytes = memory->Int(1, kMaxBytes);
  if (const auto speeds = json.Find("speeds")) {
    for (const JsonView& speed : speeds->Items()) {
      cluster.speeds.push_back(speed.Number(1e-6, 1e6));
    }
    if (static_cast<int64_t>(cluster.speeds.size()) != workers) {
      speeds->Fail(fmt::format("{} numbers, one a worker", workers),
                   fmt::format("{}", cluster.speeds.size()));
    }
  }
  return cluster;
}

Json ClusterJson(const Cluster& cluster) {
  Json json;
  json["format"] = "pipedream.cluster/1";
  json["levels"] = Json::array();
  for (const Cluster::Level& level : cluster.levels) {
    json["levels"].push_back({{"workers", level.workers},
                              {"bandwidth_bytes_per_s", level.bandwidth_bytes_per_s},
                              {"latency_ms", level.latency_ms}});
  }
  if (cluster.memory_bytes) json["memory_bytes"] = *cluster.memory_bytes;
  if (!cluster.speeds.empty()) json["speeds"] = cluster.speeds;
  return json;
}

std::string WriteCluster(const Cluster& cluster) { return WriteJson(ClusterJson(cluster)); }

}  // namespace pd
