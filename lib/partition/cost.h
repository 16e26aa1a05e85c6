#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace pd {

/// The planner's view of a profile: layers 0 … N − 1 in topological order, who reads whom, and
/// costs as integers, so that sums do not depend on their order and equal costs compare as equal.
struct CostGraph {
  struct Layer {
    int64_t forward_ps = 0, backward_ps = 0, update_ps = 0;  ///< Picoseconds, for one minibatch.
    int64_t activation_bytes = 0, parameter_bytes = 0, stash_bytes = 0;
    bool needs_gradient = false;  ///< Some parameter lies at or before this layer.
    std::vector<int> producers;   ///< Distinct layers that it reads, ascending.
    std::vector<int> consumers;   ///< Distinct layers that read it, ascending.
  };
  std::vector<Layer> layers;

  int size() const { return static_cast<int>(layers.size()); }
};

/// A layer without inputs reads the layer before it; inputs that are no layer's name are graph
/// inputs and cost nothing. Without stash_bytes a layer keeps its activation_bytes, without
/// update_ms its update is free. Throws kInvalidInput if the times add up to nothing or to more
/// than 1e9 ms, the bytes to more than 1e14.
CostGraph MakeCostGraph(const std::vector<LayerCost>& layers);

/// What matters of the layers [begin, end) as one stage, for one minibatch.
struct StageSums {
  int begin = 0, end = 0;
  int64_t forward_ps = 0, backward_ps = 0, update_ps = 0;
  int64_t parameter_bytes = 0, stash_bytes = 0;
  int64_t in_bytes = 0;   ///< Tensors from stages before, each once.
  int64_t out_bytes = 0;  ///< Tensors that stages after read, each once.
  int64_t largest_activation_bytes = 0;
};

/// The sums of [begin, begin + 1), …, [begin, N). Cost: O(N + edges).
std::vector<StageSums> SumsFrom(const CostGraph& graph, int begin);

/// Bytes of the distinct tensors with a producer before layer `cut` and a consumer at or after it,
/// for cut = 0 … N.
std::vector<int64_t> CrossingBytes(const CostGraph& graph);

enum class CostModel {
  /// A bound on what this project's runtime does: full duplex, transfers beside the computation.
  kRuntime,
  /// The formula of arXiv 1806.03377 §3.2.
  kArxiv,
};

/// Costs of stages and borders, in milliseconds a minibatch of the whole pipeline.
struct CostRule {
  CostModel model = CostModel::kRuntime;
  double bytes_per_ms = 0;

  /// `runtime`: (1/m)·max(Σ(T_l + update_l), io/B), io the bytes that a replica moves in one
  /// direction in a round of m minibatches, of which it runs one: in + out + 2(m−1)/m·Σ|w_l|. In +
  /// out holds for both directions: it sends its outputs and the gradients of its inputs, and
  /// receives its inputs and the gradients of its outputs. A tensor counts once in its producer's
  /// stage, however many stages read it, and once in each of those. Labels, graph inputs and
  /// latency are free. `arxiv`: (1/m)·max(ΣT_l, 4(m−1)Σ|w_l|/(m·B)), without updates.
  double ComputeMs(const StageSums& stage, int replicas) const;
  double LinkMs(const StageSums& stage, int replicas) const;
  double StageMs(const StageSums& stage, int replicas) const;
  /// `arxiv`: 2·a/B for the crossing bytes a of a border. `runtime`: 0, borders are part of their
  /// stages.
  double BorderMs(int64_t crossing_bytes) const;
};

/// Memory of one worker, in bytes: fixed + in_flight · each.
/// each: a version of the weights, what the layers keep for the backward pass, and the received
/// inputs. fixed: gradients, momentum, an all-reduce's received parts ((m−1)/m of the weights), two
/// buffers for each of sent outputs, received gradients and sent gradients, and the layer at work:
/// its output and its gradient.
struct StageMemory {
  int64_t fixed = 0, each = 0;

  StageMemory(const StageSums& stage, int replicas);
  int64_t Bytes(int in_flight) const { return fixed + in_flight * each; }
  /// The most in flight within `limit`, at most `cap`; 0 if not even one fits.
  int MaxInFlight(int64_t limit, int cap) const;
};

}  // namespace pd
