#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "partition/ideals.h"
#include "partition/search.h"

namespace pd {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// Of a stage with all behind it on k workers, [k]: the replicas that options.replicas fixes for
/// it; -1 where no stage ends. Empty without fixed replicas.
std::vector<int> RequiredReplicas(const SearchOptions& options);

/// The recurrence of the search: for each ideal I and each slot, the best plan of the layers behind
/// I. A slot is what the stages before need to know of the stages behind: the first worker that
/// those may use, or how many workers they use, or both. Without a memory limit their number does
/// not matter, and alike workers need no places.
class SuffixSearch {
 public:
  struct Slot {
    int first = 0;   ///< Workers below are left to the stages before; 0 where places do not matter.
    int behind = 0;  ///< Workers in use; 0 where memory does not matter.
  };
  /// One stage on the workers [first, first + replicas).
  struct Stage {
    double ps = 0;  ///< Its cost alone, with the border behind it; for several levels a bound.
    bool recompute = false;
  };
  /// The layers between two ideals on workers.
  struct Choice {
    int i = 0, j = 0;
    int first = 0, replicas = 1;
    bool recompute = false;
  };
  /// Workers and stages of a plan, in the order in which ties are broken.
  using Counts = std::pair<int, int>;
  static constexpr Counts kNoPlan = {std::numeric_limits<int>::max() / 2, 0};

  SuffixSearch(const CostGraph& graph, const Ideals& ideals, const SearchOptions& options);

  const Ideals& ideals() const { return ideals_; }
  int workers() const { return workers_; }
  int max_replicas() const { return max_replicas_; }
  bool places_matter() const { return places_; }
  int slots() const { return static_cast<int>(slots_.size()); }
  int Index(Slot slot) const { return slot.first * (counted_ ? workers_ + 1 : 1) + slot.behind; }
  Slot slot(int index) const { return slots_[index]; }

  /// FillBounds() with a limit, which it returns, as low as BestBound() allows; that is kNever if
  /// it exceeds `most`.
  double FindBounds(double most);
  /// Fills bound(): the least bottleneck of the layers behind each ideal, wherever it is at most
  /// `limit`; else kNever.
  void FillBounds(double limit) { FillBounds(limit, Everything()); }
  double bound(int ideal, int slot) const { return bounds_[At(ideal, slot)]; }
  /// The highest Slot::first from which the layers behind an ideal keep within the limit of the
  /// last FillBounds; -1 if there is none.
  int last_first(int ideal) const { return last_row_[ideal]; }
  /// With fewer replicas the computation between two ideals alone surely takes more than `limit`.
  int FewestReplicas(int i, int j, double limit) const;
  /// The first ideal from which on none can end a stage behind i: all have too much work for it.
  int StageEnd(int i, double limit) const;
  /// Over all slots of ∅: the optimum, for several levels a bound.
  double BestBound() const;
  /// Fills counts(): the fewest workers, then stages, with no cost above `limit`. After FillBounds.
  void FillCounts(double limit);
  Counts counts(int ideal, int slot) const { return counts_[At(ideal, slot)]; }
  /// The plan of these counts that comes first by the tie rule. After FillCounts, with its limit.
  std::vector<Choice> ReadPlan(double limit) const;
  StageChoice Describe(const Choice& choice) const {
    return {ideals_.LayersBetween(choice.i, choice.j), choice.first, choice.replicas,
            choice.recompute};
  }
  /// The least memory_bytes with which there is a plan; INT64_MAX if there is none.
  int64_t LeastMemory();

  /// Whether the layers between i and j may be a stage.
  bool Allowed(int i, int j) const;
  /// That stage as the one on [first, first + replicas) whose workers and all behind it are
  /// `behind`; nothing if it does not fit the memory or the fixed replicas.
  std::optional<Stage> StageOf(const StageSums& sums, int i, int j, int first, int replicas,
                               int behind) const;
  StageSums Sums(int i, int j) const {
    return ideals_.Between(i, j, options_.memory_bytes.has_value());
  }
  /// The slot of the stages behind a stage.
  Slot After(Slot slot, int first, int replicas) const {
    return {places_ ? first + replicas : 0, counted_ ? slot.behind - replicas : 0};
  }
  /// Slots at which plans may start.
  std::vector<int> Starts() const;

 private:
  struct Row {  // a range of `behind`
    int low = 0, high = -1;
  };
  struct Fit {  // the most minibatches in flight
    int plain = std::numeric_limits<int>::max(), recompute = 0;
  };

  int rows() const { return places_ ? workers_ + 1 : 1; }
  Row& RowOf(int ideal, int first) { return rows_[static_cast<size_t>(ideal * rows() + first)]; }
  const Row& RowOf(int ideal, int first) const {
    return rows_[static_cast<size_t>(ideal * rows() + first)];
  }
  size_t At(int ideal, int slot) const {
    return static_cast<size_t>(ideal) * slots_.size() + static_cast<size_t>(slot);
  }
  int Depth(int replicas, int behind) const {
    return options_.one_in_flight || !counted_ ? 1 : (behind + replicas - 1) / replicas;
  }
  Fit FitOf(const StageSums& sums, int replicas) const;
  double MostWork(double limit) const;
  double Slowest(int first, int replicas) const {
    return slowest_.empty() ? fastest_
                            : slowest_[static_cast<size_t>(first * (workers_ + 1) + replicas)];
  }
  Choice FirstOf(int i, Slot slot, double limit) const;
  double CostPs(const StageSums& sums, int i, int j, int first, int replicas, bool recompute,
                double limit) const;
  double KnownCostPs(const StageSums& sums, int i, int j, int first, int replicas, bool recompute,
                     double limit);
  double OwnLinksPs(const StageSums& sums, int i, int j, int first, int replicas) const;
  void MakeSlots();
  std::vector<int> Everything() const;
  std::vector<int> Thinned(int count) const;
  void FillBounds(double limit, const std::vector<int>& family);
  void FindReach(double limit, const std::vector<int>& family);
  int LeastEnd(int i, int j, double limit, int most) const;
  void CloseRows(int ideal, double limit);
  template <bool kBounds, typename Worth, typename Use>
  void ForEachStage(int i, int j, double limit, const Worth& worth, const Use& use);
  template <typename Value>
  void AllowIdle(std::vector<Value>& table, int ideal) const;

  const CostGraph& graph_;
  const Ideals& ideals_;
  const SearchOptions& options_;
  int workers_, max_replicas_;
  bool places_ = false, counted_ = false;
  std::vector<Slot> slots_;
  std::vector<int> required_;    // RequiredReplicas
  double fastest_ = 1;           // speed
  std::vector<double> slowest_;  // [first][replicas]; empty: all alike
  std::vector<double> bounds_;   // [ideal][slot]
  // Where bounds_ are within the limit, for each ideal and `first`.
  std::vector<Row> rows_;
  std::vector<int> last_row_;        // by ideal: the last `first` whose row is not empty
  std::vector<int64_t> least_work_;  // By ideal: of it and all after it.
  std::vector<int>
      least_end_;  // By ideal: as many workers in front at least do its layers in time.
  std::vector<Counts> counts_;
  // Costs of the stage at hand: a place is like others that lie alike in their machine.
  struct KnownCost {
    double speed = 0, ps = 0;
    int64_t stage = 0;
  };
  std::vector<KnownCost> known_costs_;      // [replicas][place][ends with the last worker]
  std::vector<KnownCost> recompute_costs_;  // the same
  std::vector<std::optional<Fit>> fits_;    // by replicas
  int64_t stage_ = 0;                       // The one at hand.
  int machine_ = 1;                         // Workers after which places are alike.
};

}  // namespace pd
