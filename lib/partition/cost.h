#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace pd {

/// The planner's view of a profile: layers 0 … N − 1 in topological order, who reads whom, and
/// costs as integers, so that sums do not depend on their order and equal costs compare as equal.
struct CostGraph {
  struct Layer {
    int64_t forward_ps = 0, backward_ps = 0, update_ps = 0;  ///< Picoseconds, for one minibatch.
    int64_t activation_bytes = 0, parameter_bytes = 0, stash_bytes = 0;
    int64_t copy_bytes = 0;  ///< Of its output in the device's own order, if another.
    /// How much more, or less, is kept where other stages read its output: a copy in the device's
    /// own order, or nothing beside the message.
    int64_t sent_stash_bytes = 0;
    /// What its passes use, its output's gradient, and those that are computed or wait meanwhile.
    int64_t scratch_bytes = 0;
    bool needs_gradient = false;    ///< Some parameter lies at or before this layer.
    std::vector<int> producers;     ///< Distinct layers that it reads, ascending.
    std::vector<int> consumers;     ///< Distinct layers that read it, ascending.
    std::vector<int> graph_inputs;  ///< Indices of the graph inputs that it reads.
  };
  std::vector<Layer> layers;
  std::vector<int64_t> graph_input_bytes;

  int size() const { return static_cast<int>(layers.size()); }
};

/// A graph input and its bytes for one minibatch.
struct GraphInput {
  std::string name;
  int64_t bytes = 0;
};

/// A layer without inputs reads the layer before it; inputs that are no layer's name are graph
/// inputs, which cost no time, and memory where `inputs` names them. Without stash_bytes a layer
/// keeps its activation_bytes, without update_ms its update is free. Throws kInvalidInput if the
/// times add up to nothing or to more than 1e9 ms, the bytes to more than 1e14.
CostGraph MakeCostGraph(const std::vector<LayerCost>& layers,
                        const std::vector<GraphInput>& inputs = {});

/// What matters of some layers as one stage, for one minibatch.
struct StageSums {
  int64_t forward_ps = 0, backward_ps = 0, update_ps = 0;
  int64_t parameter_bytes = 0, stash_bytes = 0;
  int64_t in_bytes = 0;            ///< Tensors from stages before, each once.
  int64_t in_copy_bytes = 0;       ///< Their copies in the device's own order.
  int64_t out_bytes = 0;           ///< Tensors that stages after read, each once.
  int64_t out_stash_bytes = 0;     ///< What is kept for them beside, or less: sent_stash_bytes.
  int64_t in_gradient_bytes = 0;   ///< Gradients of the former as they are sent back: see below.
  int64_t out_gradient_bytes = 0;  ///< Gradients of the latter, each once.
  int64_t graph_input_bytes = 0;   ///< That it receives; stage 0 receives all and passes them on.
  int64_t largest_scratch_bytes = 0, largest_parameter_bytes = 0;
  /// Of its all-reduce: when, in the backward pass, the first and the last bucket are ready; what
  /// surely is in the last one, its first layer with weights or all.
  int64_t first_ready_ps = 0, last_ready_ps = 0, last_bucket_bytes = 0, last_update_ps = 0;

  bool operator==(const StageSums&) const = default;
};

/// Fills the fields of the all-reduce from the others. `up(l)`, `down(l)`: the next higher, lower
/// layer of the stage; from −1 and size().
template <typename Up, typename Down>
void FillAllReduce(const CostGraph& graph, const Up& up, const Down& down, StageSums& sums) {
  constexpr int64_t kBucketBytes = 256 << 10;  // pipeline/stage_setup.cc: closes a bucket.
  if (sums.parameter_bytes == 0) return;
  const auto is_in_bucket = [&](int l) {
    return graph.layers[l].parameter_bytes > 0 || graph.layers[l].update_ps > 0;
  };
  int front = up(-1);
  sums.last_ready_ps = sums.backward_ps;
  for (; !is_in_bucket(front); front = up(front)) {
    sums.last_ready_ps -= graph.layers[front].backward_ps;
  }
  const CostGraph::Layer& last = graph.layers[front];
  const bool single = sums.parameter_bytes - last.parameter_bytes < kBucketBytes;
  sums.last_bucket_bytes = single ? sums.parameter_bytes : last.parameter_bytes;
  sums.last_update_ps = single ? sums.update_ps : last.update_ps;
  sums.first_ready_ps = single ? sums.last_ready_ps : 0;
  int64_t bytes = 0;
  for (int l = down(graph.size()); !single && bytes < kBucketBytes; l = down(l)) {
    sums.first_ready_ps += graph.layers[l].backward_ps;
    bytes += graph.layers[l].parameter_bytes;
  }
}

/// The sums of any layers (distinct indices) as one stage. `input_stage`: it is stage 0 of its
/// plan. Cost: O(N + edges of the layers).
StageSums SumsOf(const CostGraph& graph, const std::vector<int>& layers, bool input_stage);

/// Bytes of the distinct tensors with a producer in `before` and a consumer outside it: what
/// crosses the border behind those layers, one flag a layer. Cost: O(N + edges).
int64_t CrossingBytes(const CostGraph& graph, const std::vector<bool>& before);

enum class CostModel {
  /// A bound on what this project's runtime does: full duplex, transfers beside the computation.
  kRuntime,
  /// The formula of arXiv 1806.03377 §3.2.
  kArxiv,
};

/// How many messages the stage that holds the layers for which `inside` is true sends back for
/// layer `l`'s gradient, as stage/cut.h deals them: its consumers behind which all are in the stage
/// as well together, others one each.
template <typename Inside>
int GradientMessages(const CostGraph::Layer& layer, const Inside& inside) {
  int messages = 0;
  bool run = true, summed = false;
  for (auto c = layer.consumers.rbegin(); c != layer.consumers.rend(); ++c) {
    const bool here = inside(*c);
    run = run && here;
    if (here && !(run && summed)) ++messages;
    summed = run;
  }
  return messages;
}

/// Costs of stages and borders for one minibatch of the whole pipeline: whole picoseconds (_ps,
/// kept in doubles, so that equal costs compare as equal), or the same in milliseconds (_ms).
///
/// `runtime`: a replica computes T = Σ(forward + backward + update) for one of m minibatches, a
/// stage that recomputes Σ(2·forward + backward + update); one of speed v needs T/v, and the stage,
/// dealt evenly, is as slow as its slowest. In a round of m minibatches, of which it runs one, a
/// worker's link carries 2(m − 1)/m·Σ|w_l| each way, and besides out: its outputs and the gradients
/// of its inputs, in: its inputs and the gradients of its outputs. A tensor and its gradient count
/// once in the producer's stage, however many stages read it; in each of those as often as they are
/// sent. A round also takes, one after the other, the forward pass, the backward pass until the
/// first bucket of gradients is ready, all their all-reduce over its slowest link with one
/// latency, and the last bucket's update; or until the last bucket is ready and that one's with the
/// latencies of its parts and its results.
/// Labels and graph inputs are free. Links of machines: links.h. `arxiv`: (1/m)·max(ΣT_l/v, 4(m −
/// 1)Σ|w_l|/(m·B)), T_l without the update, and 2·a/B for a border that a bytes cross. Several
/// levels: hierarchy.h. For given stages on given workers no cost rises with bandwidth or speed,
/// nor falls with latency.
struct CostRule {
  struct Level {
    int workers = 1;  ///< Units of the level below (innermost: workers) joined by this level.
    double bytes_per_ms = 0, latency_ms = 0;
  };
  CostModel model = CostModel::kRuntime;
  double bytes_per_ms = 0;          ///< The innermost level's.
  std::vector<Level> levels = {};   ///< Innermost first; empty: one level, any number of workers.
  std::vector<double> speeds = {};  ///< One a worker; empty: all 1.

  /// Of a cluster's workers. Levels of one unit add nothing and are left out.
  static CostRule Of(CostModel model, const Cluster& cluster);

  bool several_levels() const { return levels.size() > 1; }
  /// The slowest of the workers [first, first + count).
  double SlowestSpeed(int first, int count) const;

  double ComputePs(const StageSums& stage, int replicas, double speed, bool recompute) const;
  /// Of a worker's link; `arxiv`: the synchronisation.
  double LinkPs(const StageSums& stage, int replicas) const;
  /// `runtime`: a round with its all-reduce, on workers [first, first + replicas); 0 for one
  /// replica. `speed`: their slowest.
  double AllReducePs(const StageSums& stage, int first, int replicas, double speed,
                     bool recompute) const;
  /// The k of p > 1 machines (units of level 1) with k of the replicas each, which sum inside
  /// first; 1 where they do not.
  int Together(int first, int replicas) const;
  /// Bytes of weights that pass one way a link of `unit` workers [u·unit, (u + 1)·unit) in a round.
  double AllReduceBytes(const StageSums& stage, int first, int replicas, int u, int unit) const;
  /// `runtime`: 0, borders are part of their stages.
  double BorderPs(int64_t crossing_bytes) const;

  double ComputeMs(const StageSums& stage, int replicas, double speed = 1,
                   bool recompute = false) const;
  double LinkMs(const StageSums& stage, int replicas) const;
  double BorderMs(int64_t crossing_bytes) const;
};

/// Rounded to whole picoseconds, halves to even.
inline double RoundPs(double ps) {
  // Sums of this size have no bits left for fractions; std::nearbyint is a call, and slow.
  constexpr double kWhole = 0x1.8p52, kMost = 0x1p51;
  return std::abs(ps) < kMost ? (ps + kWhole) - kWhole : std::nearbyint(ps);
}
inline constexpr double kPsPerMs = 1e9;

/// Memory of one worker, in bytes: fixed + in_flight · each; an estimate of what StageSetup::Memory
/// (pipeline/stage_setup.h) counts, from costs alone.
/// each: a version of the weights, what the layers keep for the backward pass, the received inputs
/// with their copies in the device's own order, and the dense payload of the sent outputs, in which
/// they are kept where the device has no order of its own. Received inputs are tensors of stages
/// before and graph inputs; of these nothing is known without a model, so they are left out of a
/// profile that has none. fixed: gradients and momentum (2·|w|), staging
/// of the all-reduce, inputs of 2 minibatches received ahead, 2 buffers for each of received and
/// sent gradients, and as scratch the most that a layer needs: the gradients that are computed or
/// wait while its own is, wherever in the model they come from, and its workspace, where the
/// profile knows that. The staging of m > 1 replicas is 32·m·min(60 KiB, b/m), b the largest bucket
/// of weights: at most |w|, and 256 KiB + the largest layer's. A stage that recomputes keeps for
/// each minibatch its received inputs and its sent outputs; what the layers keep and the copies
/// take memory once. Not known here: headers, running statistics, activations that only the forward
/// pass reads but another stage, too, and the second gradient message that a tensor gets which
/// several stages read.
struct MemoryEstimate {
  int64_t fixed = 0, each = 0;

  MemoryEstimate(const StageSums& stage, int replicas, bool recompute = false);
  int64_t Bytes(int in_flight) const { return fixed + in_flight * each; }
  /// The most in flight within `limit`, at most `cap`; 0 if not even one fits.
  int MaxInFlight(int64_t limit, int cap) const;
};

}  // namespace pd
