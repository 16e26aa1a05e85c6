#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "partition/partition.h"
#include "partition/search.h"

namespace pd {

/// Predicts what candidate plans do: depths, memory, period. Keeps account of the simulations'
/// work, so that planning stays bounded: once it is spent, depths stay at their defaults.
class Judge {
 public:
  struct Verdict {
    std::vector<StageChoice> stages;  ///< That recompute where `depths` do not fit otherwise.
    std::vector<int> depths;
    Prediction prediction;
  };

  Judge(const CostGraph& graph, const PartitionOptions& options, const CostRule& rule,
        int64_t batch_size);

  /// With one minibatch in flight, or the depths that the simulator chooses within the memory,
  /// whatever stages recompute in `stages`.
  /// `bottleneck_ms`: of the stages under the cost model. With `runtime` the same stages are
  /// simulated once.
  Verdict Of(std::vector<StageChoice> stages, double bottleneck_ms, bool one_in_flight);
  /// A period that no schedule of these stages can beat. `runtime` only.
  double BoundMs(const std::vector<StageChoice>& stages) const;

  /// The stages with these minibatches in flight: those recompute that fit only so.
  std::vector<StageChoice> Recomputing(std::vector<StageChoice> stages,
                                       const std::vector<int>& depths) const;
  bool Fits(const std::vector<StageChoice>& stages, const std::vector<int>& depths) const;

  StageSums Sums(const StageChoice& stage) const;
  MemoryEstimate Memory(const StageChoice& stage) const {
    return {Sums(stage), stage.replicas, stage.recompute};
  }
  SimulatedPipeline Pipeline(const std::vector<StageChoice>& stages) const {
    return MakePipeline(graph_, stages, options_.cluster);
  }
  /// Without recomputation.
  static std::vector<StageChoice> Plain(std::vector<StageChoice> stages);
  static std::vector<int> DefaultDepths(const std::vector<StageChoice>& stages);
  static int Workers(const std::vector<StageChoice>& stages);
  static std::string Replicas(const std::vector<StageChoice>& stages);

 private:
  Verdict Predict(const std::vector<StageChoice>& stages, double bottleneck_ms, bool one_in_flight);
  std::vector<int> Depths(const std::vector<StageChoice>& stages);
  double WayMs(const std::vector<StageChoice>& stages) const;
  Bottleneck FormulaBound(const std::vector<StageChoice>& stages, double bottleneck_ms) const;

  const CostGraph& graph_;
  const PartitionOptions& options_;
  const CostRule& rule_;
  int64_t batch_size_;
  int64_t work_left_;
  std::vector<std::pair<std::vector<StageChoice>, Verdict>> known_[2];  // By one_in_flight.
};

}  // namespace pd
