#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "partition/cost.h"
#include "partition/search.h"

namespace pd {

/// Traffic of a plan's links on a cluster of several levels, cost model `runtime`.
///
/// Workers are numbered machine by machine. A link of level 0 belongs to a worker, one of level 1
/// to a machine, one of level 2 to a rack of machines, …; each carries both directions apart. What
/// one worker sends another passes the links of both ends up to the level that joins them.
/// Minibatch b is dealt to replica b mod r of each stage, which says how often the replicas of two
/// stages that work on the same minibatch stand on the same machine.
///
/// Bytes through a link in one direction, for one minibatch in the mean:
/// - a tensor out of its producer's unit (worker, machine, …) once, in the share of minibatches in
///   which some stage that reads it works outside the unit, and its gradient into it likewise;
/// - a tensor into the unit of each stage that reads it, in the share of minibatches in which its
///   producer works outside the unit, and its gradients out of it, as many as that stage sends;
/// - an all-reduce of m replicas, k of them in the unit, 2k(m − k)/m·Σ|w_l|/m: pd-train's replicas
///   send each other what they owe directly. Where they stand evenly on p machines, these sum
///   inside first: 2(p − 1)/p·Σ|w_l|/m for each machine.
/// Stages stand on ascending workers, so of all stages that read a tensor only the last decides
/// whether it leaves its producer's unit.
class LinkLoads {
 public:
  struct Tensors {  // of a stage
    struct Input {
      int producer = 0;
      int gradients = 0;  ///< That it sends back; see GradientMessages.
      int readers = 0;    ///< Its layers that read it.
    };
    struct Output {
      int producer = 0;
      int readers = 0;  ///< Layers outside the stage that read it.
    };
    std::vector<Input> inputs;    ///< Tensors that it receives.
    std::vector<Output> outputs;  ///< Tensors that it sends.
    StageSums sums;
  };
  struct Stage {
    int first_worker = 0, replicas = 1;
    std::shared_ptr<const Tensors> tensors;
  };

  LinkLoads(const CostGraph& graph, const CostRule& rule, int workers);

  int levels() const { return static_cast<int>(units_.size()); }
  /// Workers behind a link of `level`.
  int unit(int level) const { return units_[level]; }

  /// Stages are pushed in the order of the pipeline, on ascending workers. Cost: O(its tensors).
  void Push(Stage stage);
  void Pop();

  /// Picoseconds a minibatch on the link `index` of `level`. Where stages after those pushed may
  /// still follow, on workers from `next_worker` on: a bound, exact once the unit ends before it.
  /// Cost: O(pairs of stages that exchange tensors, one of them in the unit).
  double Ps(int level, int index, int next_worker) const;
  /// The largest of the links (of the levels ≥ 1) that the last two stages use.
  double LargestPs(int next_worker) const;

 private:
  // What a stage receives from one before it.
  struct Flow {
    int from = 0, to = 0;
    int64_t tensors = 0, gradients = 0;  // Bytes there, and back.
    // Of tensors that no later stage reads: whether they leave their producer's unit depends on
    // `to`. With their gradients, once each.
    int64_t last_tensors = 0, last_gradients = 0;
  };
  struct Entry {
    Stage stage;
    size_t flows = 0;                              // Where those to it begin.
    std::vector<int> sends;                        // Flows from it.
    int64_t open_tensors = 0, open_gradients = 0;  // That stages still to come read.
  };

  double Together(const Stage& a, const Stage& b, int begin, int end) const;
  double Bytes(int level, int index, int next_worker) const;  // of the busier direction

  const CostGraph& graph_;
  const CostRule& rule_;
  int workers_;
  std::vector<int> units_;
  std::vector<Entry> stages_;
  std::vector<Flow> flows_;  // By the stage that receives them.
  // Of the layers whose tensors leave their stage: that stage, and the readers not yet pushed.
  std::vector<int> stage_of_, readers_left_;
  std::vector<int> flow_from_;  // Of the stage at hand, by stage: the flow, or −1.
};

/// The layer `producer` as an input of the stage that holds the layers for which `inside` is true.
template <typename Inside>
LinkLoads::Tensors::Input InputOf(const CostGraph& graph, int producer, const Inside& inside) {
  const CostGraph::Layer& layer = graph.layers[producer];
  const auto readers = std::count_if(layer.consumers.begin(), layer.consumers.end(), inside);
  return {producer, layer.needs_gradient ? GradientMessages(layer, inside) : 0,
          static_cast<int>(readers)};
}

/// The layer `producer`, of that stage, as an output of it.
template <typename Inside>
LinkLoads::Tensors::Output OutputOf(const CostGraph& graph, int producer, const Inside& inside) {
  const std::vector<int>& consumers = graph.layers[producer].consumers;
  const auto within = std::count_if(consumers.begin(), consumers.end(), inside);
  return {producer, static_cast<int>(consumers.size()) - static_cast<int>(within)};
}

/// What bounds the period of a plan.
struct ResourceCost {
  enum class Kind { kCompute, kLink, kAllReduce, kBorder };
  Kind kind = Kind::kCompute;
  int stage = 0;  ///< kLink of level ≥ 1: the first stage that uses it; kBorder: the one before it.
  int level = 0;  ///< kLink.
  int unit = 0;   ///< kLink of level ≥ 1: which machine, rack, ….
  double ms = 0;
};

/// Costs of all stages, links and borders of a plan under `rule`, stage by stage, then the links of
/// machines. The largest is what FindBestPlan minimises. `arxiv` with several levels: hierarchy.h.
/// Stages stand on ascending workers.
std::vector<ResourceCost> ResourceCosts(const CostGraph& graph,
                                        const std::vector<StageChoice>& stages,
                                        const CostRule& rule);

}  // namespace pd
