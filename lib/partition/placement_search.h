#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "partition/links.h"
#include "partition/suffix_search.h"

namespace pd {

/// The search where stages share links of machines (several levels, `runtime`). SuffixSearch, which
/// knows only what a stage alone moves, gives bounds. Plans are built from the first stage on, as
/// far as neither the bounds of the layers behind nor the links used so far exceed a trial value;
/// trial values are bisected between the best bound and the best plan known. Two beginnings of a
/// plan are the same if they end at the same ideal and worker and agree on the stages that stand on
/// machines on which more may follow.
class PlacementSearch {
 public:
  PlacementSearch(const CostGraph& graph, SuffixSearch& suffix, const SearchOptions& options,
                  int64_t max_steps);
  /// Fills the bounds of `suffix`.
  std::optional<SearchResult> Run();
  int64_t steps_left() const { return steps_left_; }

 private:
  using Choice = SuffixSearch::Choice;
  using Counts = SuffixSearch::Counts;
  struct Between {  // two ideals
    StageSums sums;
    std::shared_ptr<const LinkLoads::Tensors> tensors;  // Once they are asked for.
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view key) const { return std::hash<std::string_view>()(key); }
  };

  void Consider(const std::vector<Choice>& plan);
  void ConsiderWhole();
  void Bisect();
  bool MayFill(double ps);
  bool FindSome(double limit, int64_t steps);
  void StartWalk(double limit, bool any, int64_t steps);
  void BreakTies();
  Counts Best(int i, SuffixSearch::Slot slot);
  template <typename Use>
  void ForEachNext(int i, SuffixSearch::Slot slot, const Use& use);
  Counts Try(Choice& choice, Between& between, SuffixSearch::Slot slot);
  Between& Of(int i, int j);
  LinkLoads::Stage Loads(const Choice& choice, Between& between);
  bool IsCanonical(int first, int replicas, SuffixSearch::Slot slot) const;
  bool Spend(int64_t steps);
  std::string_view Key(int i, SuffixSearch::Slot slot);
  double CostPs(const std::vector<Choice>& plan) const;
  std::vector<StageChoice> Choices(const std::vector<Choice>& plan) const;

  const CostGraph& graph_;
  SuffixSearch& suffix_;
  const Ideals& ideals_;
  const SearchOptions& options_;
  int64_t steps_left_;
  int all_;  // the ideal of all layers
  LinkLoads loads_;
  std::unordered_map<int64_t, Between> between_;

  std::vector<Choice> best_;
  double best_ps_ = kNever;
  double proven_ps_ = 0;  // no plan is better
  double filled_ps_ = 0;  // The limit of suffix_'s bounds.
  int refills_ = 0;

  // Of one walk.
  double limit_ = 0;
  double next_limit_ = 0;  // the least cost that was too much
  bool any_ = false;       // stop at the first plan
  bool out_of_steps_ = false;
  int64_t walk_steps_ = 0;
  std::vector<Choice> path_;
  std::unordered_map<std::string, Counts, Hash, std::equal_to<>> known_;
  std::vector<int> key_;
};

}  // namespace pd
