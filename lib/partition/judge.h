#pragma once

#include <cstdint>
#include <vector>

#include "partition/partition.h"
#include "partition/search.h"

namespace pd {

/// Predicts what candidate plans do: depths, memory, period. Keeps account of the simulations'
/// work, so that planning stays bounded: once it is spent, depths stay at their defaults.
class Judge {
 public:
  struct Verdict {
    std::vector<StageChoice> stages;
    std::vector<int> depths;
    Prediction prediction;
  };

  Judge(const CostGraph& graph, const PartitionOptions& options, const CostRule& rule,
        int64_t batch_size);

  /// With one minibatch in flight, or the depths that the simulator chooses within the memory.
  /// `bottleneck_ms`: of the stages under the cost model. With `runtime` the same stages are
  /// simulated once.
  Verdict Of(const std::vector<StageChoice>& stages, double bottleneck_ms, bool one_in_flight);
  /// A period that no schedule of these stages can beat. `runtime` only.
  double BoundMs(const std::vector<StageChoice>& stages) const;

  StageSums Sums(const StageChoice& stage) const;
  MemoryEstimate Memory(const StageChoice& stage) const {
    return {Sums(stage), stage.replicas, stage.recompute};
  }
  SimulatedPipeline Pipeline(const std::vector<StageChoice>& stages) const {
    return MakePipeline(graph_, stages, options_.cluster);
  }
  static int Workers(const std::vector<StageChoice>& stages);
  static std::string Replicas(const std::vector<StageChoice>& stages);

 private:
  Verdict Predict(const std::vector<StageChoice>& stages, double bottleneck_ms, bool one_in_flight);
  std::vector<int> Depths(const std::vector<StageChoice>& stages, const SimulatedPipeline& pipeline,
                          double bound_ms);
  double WayMs(const std::vector<StageChoice>& stages) const;
  Bottleneck FormulaBound(const std::vector<StageChoice>& stages, double bottleneck_ms) const;

  const CostGraph& graph_;
  const PartitionOptions& options_;
  const CostRule& rule_;
  int64_t batch_size_;
  int64_t work_left_;
  std::vector<Verdict> known_[2];  // By one_in_flight.
};

}  // namespace pd
