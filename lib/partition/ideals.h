#pragma once

#include <cstdint>
#include <vector>

#include "partition/cost.h"

namespace pd {

/// Downward-closed sets ("ideals") of a layer graph: with a layer they hold all that it reads. The
/// borders of a plan are a chain of ideals ∅ = I₀ ⊂ I₁ ⊂ … ⊂ all layers, and its stages the
/// differences Iₛ₊₁ \ Iₛ. A chain of N layers has N + 1 ideals, parallel branches of b₁, b₂, …
/// layers (b₁ + 1)·(b₂ + 1)·….
///
/// Numbered from 0 (∅) to size() − 1 (all layers) by their number of layers, then by the ascending
/// lists of their layers, compared element by element: subsets come before their supersets.
class Ideals {
 public:
  /// All ideals if they are at most `most` (≥ 2). Otherwise a family of at most `most` of them: of
  /// each number of layers the one that the layers' order makes, and those that the fewest bytes
  /// cross among what grows from such by one layer; of more than `most` − 1 layers the order's own,
  /// thinned out to the narrowest of as many equal runs.
  Ideals(const CostGraph& graph, int most);

  bool all() const { return all_; }  ///< Whether no ideal is left out.
  int size() const { return static_cast<int>(ideals_.size()); }
  bool Has(int i, int layer) const {
    return (ideals_[i].bits[static_cast<size_t>(layer) / 64] >> (layer % 64) & 1) != 0;
  }
  /// Whether i is the first layers of their order.
  bool IsPrefix(int i) const { return ideals_[i].last + 1 == ideals_[i].layers; }
  /// Whether i is a proper subset of j.
  bool Within(int i, int j) const;
  /// The layers of j \ i, for i within j, ascending.
  std::vector<int> LayersBetween(int i, int j) const;
  /// SumsOf these layers (the input stage's if i is ∅). `largest`: with the largest_ fields, which
  /// only memory needs and which take longer; else they are 0.
  StageSums Between(int i, int j, bool largest) const;
  /// Bytes of the distinct tensors with a producer in i and a consumer outside it.
  int64_t crossing_bytes(int i) const { return ideals_[i].crossing_bytes; }
  /// Their producers, ascending.
  const std::vector<int>& boundary(int i) const { return ideals_[i].boundary; }
  /// Σ of all layers in i, as ComputePs counts them for `model`.
  int64_t compute_ps(int i, CostModel model) const;

 private:
  struct Ideal {
    std::vector<uint64_t> bits;
    int layers = 0, last = -1;  // how many, and the highest
    int shared = 0;             // layers below are all in it
    int64_t forward_ps = 0, backward_ps = 0, update_ps = 0, parameter_bytes = 0, stash_bytes = 0;
    int64_t crossing_bytes = 0, crossing_gradient_bytes = 0, crossing_stash_bytes = 0;
    std::vector<int> boundary;
  };
  using Bits = std::vector<uint64_t>;

  struct Border {  // What a stage takes, and lets pass, of the tensors that enter it.
    int64_t in = 0, in_copy = 0, in_gradient = 0, passing = 0;
    int64_t passing_stash = 0, passing_gradient = 0;
  };
  struct Row {
    int from = -1;
    std::vector<Border> borders;  // by number of layers
  };

  void AddBorder(int i, int j, StageSums& sums) const;
  void FillRow(int i) const;
  bool FindAll(int most, std::vector<Bits>& found) const;
  void FindSome(int most, std::vector<Bits>& found) const;
  Ideal Describe(const Bits& bits) const;
  bool MayAdd(const Bits& bits, int layer) const;

  const CostGraph& graph_;
  bool all_ = true;
  std::vector<Ideal> ideals_;
  std::vector<std::vector<int>> readers_;        // of each graph input
  std::vector<int> by_scratch_, by_parameters_;  // layers, the largest first
  mutable Row row_;                              // The last one asked for.
};

}  // namespace pd
