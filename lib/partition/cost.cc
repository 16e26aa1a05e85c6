#include "partition/cost.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include "base/error.h"

namespace pd {
namespace {

constexpr double kMaxTotalMs = 1e9;
constexpr double kMaxTotalBytes = 1e14;

// Of the runtime, which lies above this folder: pipeline/comm.h, all_reduce.h, stage_setup.h.
constexpr int64_t kReduceChunks = 32, kReducePartBytes = 60 << 10, kBucketBytes = 256 << 10;
constexpr int64_t kReceiveAhead = 2, kGradientBuffers = 2;

int64_t ToPs(double ms) { return std::llround(ms * kPsPerMs); }

void CheckTotals(const std::vector<LayerCost>& layers) {
  double ms = 0, bytes = 0;
  for (const LayerCost& layer : layers) {
    ms += layer.compute_ms();
    bytes += static_cast<double>(layer.activation_bytes) +
             static_cast<double>(layer.weight_bytes()) +
             static_cast<double>(layer.stash_bytes.value_or(layer.activation_bytes)) +
             static_cast<double>(layer.workspace_bytes.value_or(0));
  }
  PD_REQUIRE(ms <= kMaxTotalMs, "the layers' times: expected at most {} ms in all, found {}",
             kMaxTotalMs, ms);
  PD_REQUIRE(ms >= 1 / kPsPerMs,
             "the layers' times: expected more than nothing in all, found {} ms", ms);
  PD_REQUIRE(bytes <= kMaxTotalBytes, "the layers' bytes: expected at most {} in all, found {}",
             kMaxTotalBytes, bytes);
}

}  // namespace

CostGraph MakeCostGraph(const std::vector<LayerCost>& layers,
                        const std::vector<GraphInput>& inputs) {
  CheckTotals(layers);
  CostGraph graph;
  std::unordered_map<std::string, int> index, input_index;
  for (const GraphInput& input : inputs) {
    input_index.emplace(input.name, static_cast<int>(graph.graph_input_bytes.size()));
    graph.graph_input_bytes.push_back(input.bytes);
  }
  for (const LayerCost& cost : layers) {
    const int l = graph.size();
    CostGraph::Layer layer;
    layer.forward_ps = ToPs(cost.forward_ms);
    layer.backward_ps = ToPs(cost.backward_ms);
    layer.update_ps = ToPs(cost.update_ms.value_or(0));
    layer.activation_bytes = cost.activation_bytes;
    layer.parameter_bytes = cost.weight_bytes();
    layer.stash_bytes = cost.stash_bytes.value_or(cost.activation_bytes);
    layer.copy_bytes = cost.copy_bytes.value_or(0);
    const bool kept = layer.stash_bytes >= std::max(layer.activation_bytes, layer.copy_bytes);
    if (layer.copy_bytes > 0 && !kept) layer.sent_stash_bytes = layer.copy_bytes;
    if (layer.copy_bytes == 0 && kept) layer.sent_stash_bytes = -layer.activation_bytes;
    layer.scratch_bytes = cost.activation_bytes + cost.workspace_bytes.value_or(0);
    for (const std::string& input : cost.inputs) {
      const auto found = index.find(input);
      if (found != index.end()) layer.producers.push_back(found->second);
      const auto given = input_index.find(input);
      if (given != input_index.end()) layer.graph_inputs.push_back(given->second);
    }
    if (cost.inputs.empty() && l > 0) layer.producers.push_back(l - 1);
    std::sort(layer.producers.begin(), layer.producers.end());
    layer.producers.erase(std::unique(layer.producers.begin(), layer.producers.end()),
                          layer.producers.end());
    layer.needs_gradient = layer.parameter_bytes > 0;
    for (const int producer : layer.producers) {
      graph.layers[producer].consumers.push_back(l);
      layer.needs_gradient = layer.needs_gradient || graph.layers[producer].needs_gradient;
    }
    graph.layers.push_back(std::move(layer));
    index.emplace(cost.name, l);
  }
  // While a layer's gradient is computed, so are, or wait, those of all that lies before it and is
  // read by it or behind it.
  std::vector<int64_t> change(graph.layers.size() + 1, 0);
  for (int l = 0; l < graph.size(); ++l) {
    const CostGraph::Layer& layer = graph.layers[l];
    if (layer.consumers.empty()) continue;
    const int64_t bytes = std::max(layer.activation_bytes, layer.copy_bytes);
    change[static_cast<size_t>(l) + 1] += bytes;
    change[static_cast<size_t>(layer.consumers.back()) + 1] -= bytes;
  }
  int64_t waiting = 0;
  for (size_t l = 0; l < graph.layers.size(); ++l) {
    waiting += change[l];
    graph.layers[l].scratch_bytes += waiting;
  }
  return graph;
}

StageSums SumsOf(const CostGraph& graph, const std::vector<int>& layers, bool input_stage) {
  StageSums sums;
  std::vector<bool> inside(static_cast<size_t>(graph.size()), false), received(inside);
  for (const int l : layers) inside[l] = true;
  // The first stage receives every graph input, and sends on what later stages read.
  std::vector<bool> given(graph.graph_input_bytes.size(), input_stage);
  for (const int64_t bytes : graph.graph_input_bytes) {
    if (input_stage) sums.graph_input_bytes += bytes;
  }
  for (const int l : layers) {
    const CostGraph::Layer& layer = graph.layers[l];
    sums.forward_ps += layer.forward_ps;
    sums.backward_ps += layer.backward_ps;
    sums.update_ps += layer.update_ps;
    sums.parameter_bytes += layer.parameter_bytes;
    sums.stash_bytes += layer.stash_bytes;
    sums.largest_scratch_bytes = std::max(sums.largest_scratch_bytes, layer.scratch_bytes);
    sums.largest_parameter_bytes = std::max(sums.largest_parameter_bytes, layer.parameter_bytes);
    for (const int input : layer.graph_inputs) {
      if (!given[input]) sums.graph_input_bytes += graph.graph_input_bytes[input];
      given[input] = true;
    }
    for (const int producer : layer.producers) {
      if (inside[producer] || received[producer]) continue;
      received[producer] = true;
      const CostGraph::Layer& source = graph.layers[producer];
      sums.in_bytes += source.activation_bytes;
      sums.in_copy_bytes += source.copy_bytes;
      if (!source.needs_gradient) continue;
      const int messages = GradientMessages(source, [&](int c) { return inside[c]; });
      sums.in_gradient_bytes += messages * source.activation_bytes;
    }
    const bool sent = std::any_of(layer.consumers.begin(), layer.consumers.end(),
                                  [&](int consumer) { return !inside[consumer]; });
    if (sent) sums.out_bytes += layer.activation_bytes;
    if (sent) sums.out_stash_bytes += layer.sent_stash_bytes;
    if (sent && layer.needs_gradient) sums.out_gradient_bytes += layer.activation_bytes;
  }
  const auto up = [&](int l) { return *std::upper_bound(layers.begin(), layers.end(), l); };
  const auto down = [&](int l) {
    return *std::prev(std::lower_bound(layers.begin(), layers.end(), l));
  };
  FillAllReduce(graph, up, down, sums);
  return sums;
}

int64_t CrossingBytes(const CostGraph& graph, const std::vector<bool>& before) {
  int64_t bytes = 0;
  for (int l = 0; l < graph.size(); ++l) {
    const CostGraph::Layer& layer = graph.layers[l];
    if (!before[l]) continue;
    const bool crosses = std::any_of(layer.consumers.begin(), layer.consumers.end(),
                                     [&](int consumer) { return !before[consumer]; });
    if (crosses) bytes += layer.activation_bytes;
  }
  return bytes;
}

CostRule CostRule::Of(CostModel model, const Cluster& cluster) {
  CostRule rule;
  rule.model = model;
  PD_REQUIRE(!cluster.levels.empty(), "cluster: expected a level, found none");
  for (const Cluster::Level& level : cluster.levels) {
    if (level.workers > 1)
      rule.levels.push_back({level.workers, level.bandwidth_bytes_per_s / 1000, level.latency_ms});
  }
  if (rule.levels.empty()) {
    rule.levels.push_back({1, cluster.levels[0].bandwidth_bytes_per_s / 1000});
  }
  rule.bytes_per_ms = rule.levels[0].bytes_per_ms;
  const bool uneven = std::any_of(cluster.speeds.begin(), cluster.speeds.end(),
                                  [](double speed) { return speed != 1; });
  if (uneven) rule.speeds = cluster.speeds;
  return rule;
}

double CostRule::SlowestSpeed(int first, int count) const {
  if (speeds.empty()) return 1;
  return *std::min_element(speeds.begin() + first, speeds.begin() + first + count);
}

double CostRule::ComputePs(const StageSums& stage, int replicas, double speed,
                           bool recompute) const {
  const int64_t updates = model == CostModel::kRuntime ? stage.update_ps : 0;
  const int64_t forward = recompute ? 2 * stage.forward_ps : stage.forward_ps;
  return RoundPs(static_cast<double>(forward + stage.backward_ps + updates) / (replicas * speed));
}

double CostRule::LinkPs(const StageSums& stage, int replicas) const {
  // Over one denominator, so that one rounding is left.
  const int64_t m = replicas;
  if (model == CostModel::kArxiv) {
    return RoundPs(kPsPerMs * static_cast<double>(4 * (m - 1) * stage.parameter_bytes) /
                   (bytes_per_ms * static_cast<double>(m * m)));
  }
  const int64_t tensors = std::max(stage.out_bytes + stage.in_gradient_bytes,
                                   stage.in_bytes + stage.out_gradient_bytes);
  const int64_t bytes = m * tensors + 2 * (m - 1) * stage.parameter_bytes;
  return RoundPs(kPsPerMs * static_cast<double>(bytes) /
                 (bytes_per_ms * static_cast<double>(m * m)));
}

int CostRule::Together(int first, int replicas) const {
  if (!several_levels()) return 1;
  const int unit = levels[0].workers, end = first + replicas;
  const int machines = (end - 1) / unit - first / unit + 1;
  const int head = std::min(replicas, (first / unit + 1) * unit - first);
  const int tail = end - (end - 1) / unit * unit;
  const bool even = head == tail && (machines == 2 || head == unit);
  return machines > 1 && even ? head : 1;
}

double CostRule::AllReduceBytes(const StageSums& stage, int first, int replicas, int u,
                                int unit) const {
  const int64_t begin = std::max(first, u * unit);
  const int64_t end = std::min(first + replicas, (u + 1) * unit);
  const int64_t here = std::max<int64_t>(0, end - begin), others = replicas - here;
  // Between machines one message stands for all replicas of the sender's.
  const int64_t together = unit == 1 ? 1 : Together(first, replicas);
  return static_cast<double>(2 * here * others * stage.parameter_bytes) /
         static_cast<double>(replicas * together);
}

double CostRule::AllReducePs(const StageSums& stage, int first, int replicas, double speed,
                             bool recompute) const {
  if (model == CostModel::kArxiv || replicas == 1 || stage.parameter_bytes == 0) return 0;
  double slowest = AllReduceBytes(stage, 0, replicas, 0, 1) / bytes_per_ms;
  double latency = levels.empty() ? 0 : levels[0].latency_ms;
  const int last = first + replicas - 1;
  int unit = 1;
  for (size_t level = 1; level < levels.size(); ++level) {
    unit *= levels[level - 1].workers;
    if (first / unit == last / unit) break;
    latency = levels[level].latency_ms;
    // Of the units in between all hold as many.
    for (const int u : {first / unit, first / unit + 1, last / unit}) {
      const double bytes = AllReduceBytes(stage, first, replicas, u, unit);
      slowest = std::max(slowest, bytes / levels[level].bytes_per_ms);
    }
  }
  const int64_t passes = (recompute ? 2 : 1) * stage.forward_ps + stage.last_update_ps;
  const double share =
      static_cast<double>(stage.last_bucket_bytes) / static_cast<double>(stage.parameter_bytes);
  // First inside the machines, then between them.
  if (Together(first, replicas) > 1) latency += levels[0].latency_ms;
  // Behind the first bucket's parts move other buckets, so only results surely wait for a latency.
  const auto round = [&](int64_t ready_ps, double reduced, int latencies) {
    return static_cast<double>(passes + ready_ps) / speed +
           kPsPerMs * (reduced * slowest + latencies * latency);
  };
  return RoundPs(std::max(round(stage.first_ready_ps, 1, 1), round(stage.last_ready_ps, share, 2)) /
                 replicas);
}

double CostRule::BorderPs(int64_t crossing_bytes) const {
  if (model == CostModel::kRuntime) return 0;
  return RoundPs(kPsPerMs * 2 * static_cast<double>(crossing_bytes) / bytes_per_ms);
}

double CostRule::ComputeMs(const StageSums& stage, int replicas, double speed,
                           bool recompute) const {
  return ComputePs(stage, replicas, speed, recompute) / kPsPerMs;
}

double CostRule::LinkMs(const StageSums& stage, int replicas) const {
  return LinkPs(stage, replicas) / kPsPerMs;
}

double CostRule::BorderMs(int64_t crossing_bytes) const {
  return BorderPs(crossing_bytes) / kPsPerMs;
}

MemoryEstimate::MemoryEstimate(const StageSums& stage, int replicas, bool recompute) {
  const int64_t weights = stage.parameter_bytes, m = replicas;
  const int64_t inputs = stage.in_bytes + stage.graph_input_bytes;
  const int64_t bucket = std::min(weights, kBucketBytes + stage.largest_parameter_bytes);
  const int64_t staging = m > 1 ? kReduceChunks * m * std::min(kReducePartBytes, bucket / m) : 0;
  const int64_t arena = stage.stash_bytes + stage.out_stash_bytes + stage.in_copy_bytes;
  each = weights + inputs + stage.out_bytes + (recompute ? 0 : arena);
  fixed = 2 * weights + staging + kReceiveAhead * inputs +
          kGradientBuffers * (stage.out_gradient_bytes + stage.in_gradient_bytes) +
          stage.largest_scratch_bytes + (recompute ? arena : 0);
}

int MemoryEstimate::MaxInFlight(int64_t limit, int cap) const {
  if (fixed > limit) return 0;
  if (each == 0) return cap;
  return static_cast<int>(std::min<int64_t>(cap, (limit - fixed) / each));
}

}  // namespace pd
