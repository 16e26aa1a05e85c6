// The exact search, three passes over the same candidates (begin, end, replicas):
//   1. bottleneck[i][k]: the least bottleneck of layers i … N − 1 on exactly k workers. "Exactly",
//   because k
//      fixes the depth ⌈k/m⌉ of a first stage with m replicas, hence whether it fits the memory.
//   2. With the optimum known, stages[i][k]: the fewest stages whose costs all stay within it. The
//   maximum
//      of pass 1 hides ties behind the slowest stage, so the tie rule cannot be folded into pass 1.
//   3. The earliest cuts, then the replicas, read off forwards.
#include "partition/search.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace pd {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kNoStages = std::numeric_limits<int>::max() / 2;

class Search {
 public:
  Search(const CostGraph& graph, const SearchOptions& options)
      : graph_(graph),
        options_(options),
        layers_(graph.size()),
        workers_(options.replicate ? options.max_workers : std::min(options.max_workers, layers_)),
        max_replicas_(options.replicate ? workers_ : 1),
        crossing_(CrossingBytes(graph)) {}

  std::optional<SearchResult> Run() {
    FillBottlenecks();
    const auto first = bottleneck_.begin();
    const auto best = std::min_element(first, first + workers_ + 1);
    if (*best == kNever) return std::nullopt;
    bound_ = *best;
    used_ = static_cast<int>(best - first);
    FillStages();
    SearchResult result;
    result.bottleneck_ms = bound_;
    result.stages = Replicas(Cuts());
    return result;
  }

 private:
  size_t At(int layer, int workers) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(workers_ + 1) +
           static_cast<size_t>(workers);
  }

  double Cost(const StageSums& sums, int replicas) const {
    const double border =
        sums.end < layers_ ? options_.rule.BorderMs(crossing_[static_cast<size_t>(sums.end)]) : 0;
    return std::max(border, options_.rule.StageMs(sums, replicas));
  }

  // The most workers from this stage to the end with which it fits the memory; below `replicas`:
  // never.
  int MostWorkers(const StageSums& sums, int replicas) const {
    if (!options_.memory_bytes) return workers_;
    const int depth = MemoryEstimate(sums, replicas).MaxInFlight(*options_.memory_bytes, workers_);
    if (options_.one_in_flight) return depth >= 1 ? workers_ : 0;
    return static_cast<int>(std::min<int64_t>(workers_, int64_t{depth} * replicas));
  }

  void FillBottlenecks() {
    bottleneck_.assign(At(layers_, workers_) + 1, kNever);
    bottleneck_[At(layers_, 0)] = 0;
    for (int i = layers_ - 1; i >= 0; --i) {
      double* const row = &bottleneck_[At(i, 0)];
      for (const StageSums& sums : SumsFrom(graph_, i)) {
        const double* const after = &bottleneck_[At(sums.end, 0)];
        for (int m = 1; m <= max_replicas_; ++m) {
          const double cost = Cost(sums, m);
          const int most = MostWorkers(sums, m);
          for (int k = m; k <= most; ++k) {
            const double with = std::max(cost, after[k - m]);
            row[k] = std::min(row[k], with);
          }
        }
      }
    }
  }

  void FillStages() {
    stages_.assign(At(layers_, workers_) + 1, kNoStages);
    stages_[At(layers_, 0)] = 0;
    for (int i = layers_ - 1; i >= 0; --i) {
      int* const row = &stages_[At(i, 0)];
      for (const StageSums& sums : SumsFrom(graph_, i)) {
        const int* const after = &stages_[At(sums.end, 0)];
        for (int m = 1; m <= std::min(max_replicas_, used_); ++m) {
          if (Cost(sums, m) > bound_) continue;
          const int most = std::min(used_, MostWorkers(sums, m));
          for (int k = m; k <= most; ++k) row[k] = std::min(row[k], after[k - m] + 1);
        }
      }
    }
  }

  // Worker counts left after a first stage `sums`, from any of `counts`, with the rest in `stages`
  // stages.
  std::vector<int> Left(const StageSums& sums, const std::vector<int>& counts, int stages) const {
    std::vector<bool> left(static_cast<size_t>(used_) + 1, false);
    for (int m = 1; m <= std::min(max_replicas_, used_); ++m) {
      if (Cost(sums, m) > bound_) continue;
      const int most = MostWorkers(sums, m);
      for (const int k : counts) {
        if (k >= m && k <= most && stages_[At(sums.end, k - m)] == stages) left[k - m] = true;
      }
    }
    std::vector<int> out;
    for (int k = 0; k <= used_; ++k) {
      if (left[static_cast<size_t>(k)]) out.push_back(k);
    }
    return out;
  }

  // The earliest cuts among the plans with the fewest stages on used_ workers.
  std::vector<StageSums> Cuts() const {
    std::vector<StageSums> cuts;
    std::vector<int> counts = {used_};
    int stages = stages_[At(0, used_)];
    PD_CHECK(stages < kNoStages, "the optimum has no plan");
    for (int i = 0; i < layers_; i = cuts.back().end) {
      --stages;
      for (const StageSums& sums : SumsFrom(graph_, i)) {
        std::vector<int> left = Left(sums, counts, stages);
        if (left.empty()) continue;
        cuts.push_back(sums);
        counts = std::move(left);
        break;
      }
      PD_CHECK(!cuts.empty() && cuts.back().begin == i, "no cut after layer {}", i);
    }
    return cuts;
  }

  // With the cuts fixed, the fewest replicas for the first stage, then for the second, ….
  std::vector<StageChoice> Replicas(const std::vector<StageSums>& cuts) const {
    const auto width = static_cast<size_t>(used_) + 1;
    std::vector<std::vector<bool>> feasible(cuts.size() + 1, std::vector<bool>(width, false));
    feasible.back()[0] = true;
    const auto fits = [&](size_t s, int k, int m) {
      return feasible[s + 1][static_cast<size_t>(k - m)] && Cost(cuts[s], m) <= bound_ &&
             k <= MostWorkers(cuts[s], m);
    };
    for (size_t s = cuts.size(); s-- > 0;) {
      for (int k = 1; k <= used_; ++k) {
        for (int m = 1; m <= std::min(k, max_replicas_) && !feasible[s][k]; ++m) {
          feasible[s][k] = fits(s, k, m);
        }
      }
    }
    std::vector<StageChoice> choices;
    int k = used_;
    for (size_t s = 0; s < cuts.size(); ++s) {
      int m = 1;
      while (m <= k && !fits(s, k, m)) ++m;
      PD_CHECK(m <= k, "no replicas for stage {}", s);
      choices.push_back({cuts[s].begin, cuts[s].end, m});
      k -= m;
    }
    return choices;
  }

  const CostGraph& graph_;
  const SearchOptions& options_;
  int layers_, workers_, max_replicas_;
  std::vector<int64_t> crossing_;
  std::vector<double> bottleneck_;  // [layer][workers]
  std::vector<int> stages_;         // [layer][workers]
  double bound_ = 0;                // The optimum.
  int used_ = 0;                    // Its fewest workers.
};

}  // namespace

std::optional<SearchResult> FindBestPlan(const CostGraph& graph, const SearchOptions& options) {
  return Search(graph, options).Run();
}

int64_t SmallestMemory(const CostGraph& graph, const SearchOptions& options) {
  const int n =
      options.replicate ? options.max_workers : std::min(options.max_workers, graph.size());
  const int max_replicas = options.replicate ? n : 1;
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const auto width = static_cast<size_t>(n) + 1;
  std::vector<int64_t> least((static_cast<size_t>(graph.size()) + 1) * width, kNone);
  least[static_cast<size_t>(graph.size()) * width] = 0;
  for (int i = graph.size() - 1; i >= 0; --i) {
    int64_t* const row = &least[static_cast<size_t>(i) * width];
    for (const StageSums& sums : SumsFrom(graph, i)) {
      const int64_t* const after = &least[static_cast<size_t>(sums.end) * width];
      for (int m = 1; m <= max_replicas; ++m) {
        const MemoryEstimate memory(sums, m);
        for (int k = m; k <= n; ++k) {
          const int depth = options.one_in_flight ? 1 : (k + m - 1) / m;
          row[k] = std::min(row[k], std::max(memory.Bytes(depth), after[k - m]));
        }
      }
    }
  }
  return *std::min_element(least.begin(), least.begin() + n + 1);
}

}  // namespace pd
