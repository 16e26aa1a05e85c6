#pragma once

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
    int64_t scratch_bytes = 0;      ///< Twice the activation, and what its passes use besides.
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
  int64_t in_bytes = 0;           ///< Tensors from stages before, each once.
  int64_t out_bytes = 0;          ///< Tensors that stages after read, each once.
  int64_t graph_input_bytes = 0;  ///< That it receives; stage 0 receives all and passes them on.
  int64_t largest_scratch_bytes = 0, largest_parameter_bytes = 0;

  bool operator==(const StageSums&) const = default;
};

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

/// Costs of stages and borders for one minibatch of the whole pipeline: whole picoseconds (_ps,
/// kept in doubles, so that equal costs compare as equal), or the same in milliseconds (_ms).
///
/// `runtime`: a replica computes T = Σ(forward + backward + update) for one of m minibatches, a
/// stage that recomputes Σ(2·forward + backward + update); one of speed v needs T/v, and the stage,
/// dealt evenly, is as slow as its slowest. A worker's link moves in each direction, in a round of
/// m minibatches of which it runs one, in + out + 2(k − 1)/k·Σ|w_l|: it sends its outputs and the
/// gradients of its inputs, and receives its inputs and the gradients of its outputs. A tensor
/// counts once in its producer's stage, however many stages read it, and once in each of those. k:
/// the stage's replicas on the same machine; m where there is one level. Labels, graph inputs and
/// latency are free. Links of machines: links.h. `arxiv`: (1/m)·max(ΣT_l/v, 4(m − 1)Σ|w_l|/(m·B)),
/// T_l without the update, and 2·a/B for a border that a bytes cross. Several levels: hierarchy.h.
struct CostRule {
  struct Level {
    int workers = 1;  ///< Units of the level below (innermost: workers) joined by this level.
    double bytes_per_ms = 0;
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
  /// `together`: k above. `arxiv`: the synchronisation.
  double LinkPs(const StageSums& stage, int replicas, int together) const;
  /// The busiest of the links of workers [first, first + replicas).
  double WorkerLinkPs(const StageSums& stage, int first, int replicas) const;
  /// `runtime`: 0, borders are part of their stages.
  double BorderPs(int64_t crossing_bytes) const;

  /// On one level.
  double ComputeMs(const StageSums& stage, int replicas, double speed = 1,
                   bool recompute = false) const;
  double LinkMs(const StageSums& stage, int replicas) const;
  double StageMs(const StageSums& stage, int replicas) const;
  double BorderMs(int64_t crossing_bytes) const;
};

/// Rounded to whole picoseconds.
double RoundPs(double ps);
inline constexpr double kPsPerMs = 1e9;

/// Memory of one worker, in bytes: fixed + in_flight · each; an estimate of what StageSetup::Memory
/// (pipeline/stage_setup.h) counts, from costs alone.
/// each: a version of the weights, what the layers keep for the backward pass, the received inputs,
/// and the dense payload of the sent outputs. Received inputs are tensors of stages before and
/// graph inputs; of these nothing is known without a model, so they are left out of a profile that
/// has none. fixed: gradients and momentum (2·|w|), staging of the all-reduce, inputs of 2
/// minibatches received ahead, 2 buffers for each of received and sent gradients, and as scratch
/// the most that a layer needs: two activations (its output and its gradient) and its workspace,
/// where the profile knows that. The staging of m > 1 replicas is 32·m·min(60 KiB, b/m), b the
/// largest bucket of weights: at most |w|, and 256 KiB + the largest layer's. A stage that
/// recomputes keeps for each minibatch only its received inputs; what the layers keep and the sent
/// outputs take memory once. Not known here: headers, running statistics, copies of border tensors
/// in an inner (padded) layout, and the second gradient message that a skip connection may need.
struct MemoryEstimate {
  int64_t fixed = 0, each = 0;

  MemoryEstimate(const StageSums& stage, int replicas, bool recompute = false);
  int64_t Bytes(int in_flight) const { return fixed + in_flight * each; }
  /// The most in flight within `limit`, at most `cap`; 0 if not even one fits.
  int MaxInFlight(int64_t limit, int cap) const;
};

}  // namespace pd
