#include "partition/cost.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include "base/error.h"

namespace pd {
namespace {

constexpr double kPsPerMs = 1e9;
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
             static_cast<double>(layer.parameter_bytes) +
             static_cast<double>(layer.stash_bytes.value_or(layer.activation_bytes));
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
    layer.parameter_bytes = cost.parameter_bytes;
    layer.stash_bytes = cost.stash_bytes.value_or(cost.activation_bytes);
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
  return graph;
}

std::vector<StageSums> SumsFrom(const CostGraph& graph, int begin) {
  std::vector<StageSums> all;
  all.reserve(static_cast<size_t>(graph.size() - begin));
  std::vector<bool> received(static_cast<size_t>(begin), false);
  // The first stage receives every graph input, and sends on what later stages read.
  std::vector<bool> given(graph.graph_input_bytes.size(), begin == 0);
  StageSums sums;
  sums.begin = begin;
  for (const int64_t bytes : graph.graph_input_bytes) {
    if (begin == 0) sums.graph_input_bytes += bytes;
  }
  for (int l = begin; l < graph.size(); ++l) {
    const CostGraph::Layer& layer = graph.layers[l];
    sums.end = l + 1;
    sums.forward_ps += layer.forward_ps;
    sums.backward_ps += layer.backward_ps;
    sums.update_ps += layer.update_ps;
    sums.parameter_bytes += layer.parameter_bytes;
    sums.stash_bytes += layer.stash_bytes;
    sums.largest_activation_bytes = std::max(sums.largest_activation_bytes, layer.activation_bytes);
    sums.largest_parameter_bytes = std::max(sums.largest_parameter_bytes, layer.parameter_bytes);
    for (const int input : layer.graph_inputs) {
      if (!given[input]) sums.graph_input_bytes += graph.graph_input_bytes[input];
      given[input] = true;
    }
    for (const int producer : layer.producers) {
      const CostGraph::Layer& read = graph.layers[producer];
      if (producer >= begin) {
        if (read.consumers.back() == l) sums.out_bytes -= read.activation_bytes;
      } else if (!received[producer]) {
        received[producer] = true;
        sums.in_bytes += read.activation_bytes;
      }
    }
    if (!layer.consumers.empty()) sums.out_bytes += layer.activation_bytes;
    all.push_back(sums);
  }
  return all;
}

std::vector<int64_t> CrossingBytes(const CostGraph& graph) {
  std::vector<int64_t> crossing(static_cast<size_t>(graph.size()) + 1, 0);
  // Differences first: a tensor crosses the cuts from its producer + 1 to its last consumer.
  for (int l = 0; l < graph.size(); ++l) {
    const CostGraph::Layer& layer = graph.layers[l];
    if (layer.consumers.empty()) continue;
    crossing[l + 1] += layer.activation_bytes;
    crossing[layer.consumers.back() + 1] -= layer.activation_bytes;
  }
  for (size_t cut = 1; cut < crossing.size(); ++cut) crossing[cut] += crossing[cut - 1];
  return crossing;
}

double CostRule::ComputeMs(const StageSums& stage, int replicas) const {
  const int64_t updates = model == CostModel::kRuntime ? stage.update_ps : 0;
  return static_cast<double>(stage.forward_ps + stage.backward_ps + updates) /
         (kPsPerMs * replicas);
}

double CostRule::LinkMs(const StageSums& stage, int replicas) const {
  // Over one denominator, m²·B, so that one rounding is left and equal costs stay equal.
  const int64_t m = replicas;
  const int64_t bytes = model == CostModel::kRuntime ? m * (stage.in_bytes + stage.out_bytes) +
                                                           2 * (m - 1) * stage.parameter_bytes
                                                     : 4 * (m - 1) * stage.parameter_bytes;
  return static_cast<double>(bytes) / (bytes_per_ms * static_cast<double>(m * m));
}

double CostRule::StageMs(const StageSums& stage, int replicas) const {
  return std::max(ComputeMs(stage, replicas), LinkMs(stage, replicas));
}

double CostRule::BorderMs(int64_t crossing_bytes) const {
  return model == CostModel::kArxiv ? 2 * static_cast<double>(crossing_bytes) / bytes_per_ms : 0;
}

MemoryEstimate::MemoryEstimate(const StageSums& stage, int replicas) {
  const int64_t weights = stage.parameter_bytes, m = replicas;
  const int64_t inputs = stage.in_bytes + stage.graph_input_bytes;
  const int64_t bucket = std::min(weights, kBucketBytes + stage.largest_parameter_bytes);
  const int64_t staging = m > 1 ? kReduceChunks * m * std::min(kReducePartBytes, bucket / m) : 0;
  each = weights + stage.stash_bytes + inputs + stage.out_bytes;
  fixed = 2 * weights + staging + kReceiveAhead * inputs +
          kGradientBuffers * (stage.out_bytes + stage.in_bytes) +
          2 * stage.largest_activation_bytes;
}

int MemoryEstimate::MaxInFlight(int64_t limit, int cap) const {
  if (fixed > limit) return 0;
  if (each == 0) return cap;
  return static_cast<int>(std::min<int64_t>(cap, (limit - fixed) / each));
}

}  // namespace pd
