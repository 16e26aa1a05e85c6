#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "partition/ideals.h"
#include "partition/search.h"

namespace pd {

/// `arxiv` on several levels: PipeDream's recurrence of SOSP 2019. A unit of level k is made of
/// levels[k − 1].workers units of level k − 1, joined by levels[k − 1]'s links; a unit of level 0
/// is a worker. From ideal I to J,
///   T^k(I→J, m) = (1/m)·max{A^(k−1)(I→J, a whole unit), 2(m − 1)Σ|w_l|/B_k}
///   A^k(I→J, m) = min over S, m' of max{T^k(I→S, m'), 2a_S/B_k, A^k(S→J, m − m')}
///   A^0(I→J)    = ΣT_l/v
/// with a_S the bytes that cross S. So a stage at level k that takes m units runs, in each of them,
/// the same pipeline of level k − 1, down to stages on workers: the m units take minibatches in
/// turn, and so do their stages' replicas, which therefore need not stand on consecutive workers.
/// Differs: ideals, idle units, speeds (of the slowest unit at each place), memory: a stage has in
/// flight ⌈(Σ_{t≥s} r_t)/r_s⌉ of the flattened pipeline.
/// Ties: the first that is met, stages from the front, with the earlier border, then on fewer
/// units, then on lower ones. The outermost level takes only whole units; a cluster's rest that
/// fills none is idle.
class HierarchySearch {
 public:
  HierarchySearch(const CostGraph& graph, const Ideals& ideals, const SearchOptions& options);

  /// Nothing if no plan fits the memory. The bound is that of the ideals looked at.
  std::optional<SearchResult> Run();
  /// As SmallestMemory.
  int64_t LeastMemory();

 private:
  // All that the inside of a unit needs to know of its outside.
  struct Context {
    int level = 0;
    int behind = 0;              // Workers of stages behind; 0 where they do not count.
    int copies = 1;              // Units that run the same.
    std::vector<double> speeds;  // Of the unit's workers, the slowest of all copies; empty: all 1.
    bool operator<(const Context& other) const;
  };
  struct Choice {  // A first stage, at position `first` among the units.
    double value = 0;
    int border = 0, first = 0, units = 0, inside = 0;  // `inside`: workers used in each unit
  };
  // The best plans from each ideal to one: [ideal][units left free in front][workers in use].
  using Column = std::vector<Choice>;
  struct Key {
    Context context;
    int to = 0;
    bool operator<(const Key& other) const;
  };

  int Places(int level) const { return units_[static_cast<size_t>(level)]; }
  int Size(int level) const { return sizes_[static_cast<size_t>(level)]; }
  int Used(int level) const { return counted_ ? Size(level) : 0; }
  size_t At(int level, int ideal, int first, int used) const {
    return static_cast<size_t>(((ideal * (Places(level) + 1)) + first) * (Used(level) + 1) + used);
  }
  const Column& Solve(const Context& context, int to);
  void FillFrom(const Context& context, int to, int from, Column& column);
  Context Inside(const Context& context, int first, int units, int behind) const;
  double Value(const Context& context, int from, int to, int used);
  double WorkerValue(const Context& context, int from, int to) const;
  bool Recomputes(const Context& context, const StageSums& sums) const;
  bool Allowed(int i, int j) const;
  int BestUse(const Context& context, int from, int to);
  void Emit(const Context& context, int from, int to, int used, const std::vector<int>& bases,
            std::vector<StageChoice>& stages);
  double Find(int& used, Context& top);

  const StageSums& Sums(int from, int to) const {
    return sums_[static_cast<size_t>(from) * static_cast<size_t>(ideals_.size()) +
                 static_cast<size_t>(to)];
  }

  const CostGraph& graph_;
  const Ideals& ideals_;
  const SearchOptions& options_;
  std::vector<StageSums> sums_;  // Between all ideals that may be a stage's.
  bool counted_, for_memory_ = false;
  std::vector<int> units_, sizes_;  // By level: units of the level below, and workers, in a unit.
  std::vector<int> required_;       // RequiredReplicas
  std::map<Key, Column> columns_;
};

}  // namespace pd
