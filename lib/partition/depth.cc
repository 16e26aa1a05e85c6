// Minibatches in flight by trial. The default depth keeps a pipeline full when stages are balanced
// and transfers are free. Where they are not, some workers idle: balanced stages with slow links
// need about two more for each border behind them, and a stage whose neighbours have other replica
// counts a few more, or one, so that rounds meet. First a family of deeper candidates is simulated;
// the best few are improved step by step; the best is lowered as far as its period allows.
#include "partition/depth.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace pd {
namespace {

constexpr int kMostExtra = 4;  // In flight, for each border behind a stage.
constexpr int kFewStages = 8;  // Up to here depths are improved step by step.
constexpr size_t kStarts = 3;  // Members of the family that are improved.
constexpr int kMostRaise = 2;  // Of one step.

class DepthSearch {
 public:
  DepthSearch(const std::string& schedule, const PipelineShape& shape,
              const PipelineOfDepths& pipeline, const std::vector<int>& most, double bound_ms,
              int64_t& work_left)
      : schedule_(schedule),
        shape_(shape),
        pipeline_(pipeline),
        most_(most),
        enough_ms_(bound_ms * (1 + kSamePeriod)),
        work_left_(work_left) {
    for (int s = 0; s < shape.num_stages(); ++s) {
      default_.push_back(DefaultInFlight(shape, s));
    }
  }

  std::vector<int> Run() {
    if (Spent()) return default_;
    std::vector<Trial> trials = {Try(default_)};
    double best_ms = trials[0].ms;
    for (const std::vector<int>& depths : Family()) {
      if (best_ms <= enough_ms_ || Spent()) break;
      if (depths == default_) continue;
      trials.push_back(Try(depths));
      best_ms = std::min(best_ms, trials.back().ms);
    }
    std::stable_sort(trials.begin(), trials.end(),
                     [](const Trial& a, const Trial& b) { return a.ms < b.ms; });
    trials.resize(std::min(trials.size(), kStarts));
    Trial best = trials[0];
    for (Trial& trial : trials) {
      while (shape_.num_stages() <= kFewStages && Improve(trial)) {
      }
      if (IsBetter(trial.ms, best.ms)) best = std::move(trial);
    }
    return Lowered(std::move(best));
  }

 private:
  struct Trial {
    std::vector<int> depths;
    double ms = 0;
  };

  bool Spent() const { return work_left_ <= 0; }
  static bool IsBetter(double ms, double than_ms) { return ms < than_ms * (1 - kSamePeriod); }

  Trial Try(std::vector<int> depths) {
    const auto known = known_.find(depths);
    if (known != known_.end()) return {std::move(depths), known->second};
    PipelineShape shape = shape_;
    for (int s = 0; s < shape.num_stages(); ++s) shape.stages[s].in_flight = depths[s];
    const Simulation simulation = Simulate(schedule_, shape, pipeline_(depths));
    work_left_ -= simulation.work;
    known_.emplace(depths, simulation.minibatch_ms);
    return {std::move(depths), simulation.minibatch_ms};
  }

  // Lowers what does not fit, what makes gradients too stale, and what the stage before does not
  // let out: (D_s − 1)·r_s may not grow along the pipeline.
  void Clamp(std::vector<int>& depths) const {
    for (size_t s = 0; s < depths.size(); ++s) {
      const int behind = static_cast<int>(depths.size() - 1 - s);
      const int most = std::min(most_[s], default_[s] + kMostExtra * behind);
      depths[s] = std::min(depths[s], std::max(most, default_[s]));
      if (s == 0) continue;
      const int ahead = (depths[s - 1] - 1) * shape_.stages[s - 1].replicas;
      depths[s] = std::min(depths[s], ahead / shape_.stages[s].replicas + 1);
    }
  }

  // Ascending by the minibatches in flight of all stages.
  std::vector<std::vector<int>> Family() const {
    const int stages = shape_.num_stages();
    std::set<std::pair<int, std::vector<int>>> family;
    const auto add = [&](auto extra_of) {
      std::vector<int> depths = default_;
      for (int s = 0; s + 1 < stages; ++s) depths[s] += extra_of(stages - 1 - s);
      Clamp(depths);
      family.emplace(std::accumulate(depths.begin(), depths.end(), 0), std::move(depths));
    };
    for (int part = 8; part > 1 && stages > kFewStages; part /= 2) {
      add([&](int behind) { return (behind + part - 1) / part; });
    }
    for (int extra = 1; extra <= kMostExtra; ++extra) {
      add([&](int behind) { return extra * behind; });
      add([&](int) { return extra; });
    }
    std::vector<std::vector<int>> ascending;
    for (const auto& [sum, depths] : family) ascending.push_back(depths);
    return ascending;
  }

  // Tries other depths of each stage but the last, then of it and all before it together, which
  // changes one border alone. Whether the period is shorter for it.
  bool Improve(Trial& trial) {
    const double before = trial.ms;
    for (size_t s = trial.depths.size() - 1; s-- > 0;) {
      Move(trial, s, s, default_[s] - trial.depths[s]);
      if (s > 0) Move(trial, 0, s, -kMostRaise);
    }
    return trial.ms < before;
  }

  // The best of the depths of stages [first, last] from `least` to kMostRaise more.
  void Move(Trial& trial, size_t first, size_t last, int least) {
    const std::vector<int> start = trial.depths;
    for (int more = least; more <= kMostRaise; ++more) {
      if (trial.ms <= enough_ms_ || Spent()) return;
      std::vector<int> depths = start;
      for (size_t s = first; s <= last; ++s) depths[s] = std::max(default_[s], start[s] + more);
      Clamp(depths);
      if (depths == start || depths == trial.depths) continue;
      Trial moved = Try(std::move(depths));
      if (IsBetter(moved.ms, trial.ms)) trial = std::move(moved);
    }
  }

  // The last stage's depth first, as far as the period stays the same.
  std::vector<int> Lowered(Trial best) {
    const double near_ms = best.ms * (1 + kSamePeriod);
    for (size_t s = best.depths.size(); s-- > 0;) {
      const int deepest = best.depths[s];
      for (int depth = default_[s]; depth < deepest && !Spent(); ++depth) {
        std::vector<int> depths = best.depths;
        depths[s] = depth;
        Clamp(depths);
        Trial lower = Try(std::move(depths));
        if (lower.ms > near_ms) continue;
        best = std::move(lower);
        break;
      }
    }
    return best.depths;
  }

  const std::string& schedule_;
  const PipelineShape& shape_;
  const PipelineOfDepths& pipeline_;
  const std::vector<int>& most_;
  const double enough_ms_;
  std::vector<int> default_;
  std::map<std::vector<int>, double> known_;  // Periods of depths.
  int64_t& work_left_;
};

}  // namespace

std::vector<int> ChooseInFlight(const std::string& schedule, const PipelineShape& shape,
                                const PipelineOfDepths& pipeline, const std::vector<int>& most,
                                double bound_ms, int64_t& work_left) {
  return DepthSearch(schedule, shape, pipeline, most, bound_ms, work_left).Run();
}

}  // namespace pd
