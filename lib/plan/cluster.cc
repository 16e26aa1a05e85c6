#include <fmt/format.h>

#include <nlohmann/json.hpp>

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
