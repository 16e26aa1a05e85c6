// Minibatches in flight by trial. The default depth keeps a pipeline full when stages are balanced
// and transfers are free. Where they are not, some workers idle: balanced stages with slow links
// need about two more for each border behind them, and a stage whose neighbours have other replica
// counts a few more. First a family of deeper candidates is simulated; then the best is trimmed,
// the last stage first, as far as its period allows.
#include "partition/depth.h"

#include <algorithm>

namespace pd {
namespace {

constexpr double kWorthwhile = 0.99;  // A raise must bring the period below this share of it.
constexpr double kTrimmed = 1.003;    // What trimming may cost.
constexpr int kMostExtra = 4;         // Steps of each family.
constexpr int kFewStages = 8;         // Up to here single stages are tried, too.

class DepthSearch {
 public:
  DepthSearch(const std::string& schedule, const PipelineShape& shape,
              const SimulatedPipeline& pipeline, const std::vector<int>& most, int64_t& work_left)
      : schedule_(schedule),
        shape_(shape),
        pipeline_(pipeline),
        most_(most),
        work_left_(work_left) {
    for (int s = 0; s < shape.num_stages(); ++s) {
      default_.push_back(DefaultInFlight(shape, s));
    }
  }

  std::vector<int> Run(double bound_ms) {
    best_ = default_;
    if (Spent()) return default_;
    best_ms_ = Period(default_);
    const double default_ms = best_ms_;
    if (default_ms * kWorthwhile <= bound_ms) return default_;
    const int stages = shape_.num_stages();
    for (int part = 8; part > 1 && stages > kFewStages; part /= 2) {
      std::vector<int> slope = default_;
      for (int s = 0; s + 1 < stages; ++s) slope[s] += (stages - 1 - s + part - 1) / part;
      Try(slope);
    }
    for (int extra = 1; extra <= kMostExtra; ++extra) {
      std::vector<int> slope = default_, level = default_;
      for (int s = 0; s + 1 < stages; ++s) {
        slope[s] += extra * (stages - 1 - s);
        level[s] += extra;
      }
      Try(slope);
      Try(level);
      for (int s = 0; s + 1 < stages && stages <= kFewStages; ++s) {
        std::vector<int> single = default_;
        single[s] += extra;
        Try(single);
      }
    }
    if (best_ms_ >= default_ms * kWorthwhile) return default_;
    Trim(best_ms_ * kTrimmed);
    return best_;
  }

 private:
  bool Spent() const { return work_left_ <= 0; }

  double Period(const std::vector<int>& depths) {
    PipelineShape shape = shape_;
    for (int s = 0; s < shape.num_stages(); ++s) shape.stages[s].in_flight = depths[s];
    const Simulation simulation = Simulate(schedule_, shape, pipeline_);
    work_left_ -= simulation.work;
    return simulation.minibatch_ms;
  }

  // Lowers what does not fit the memory, and what a stage before does not let out: (D_s − 1)·r_s
  // may not grow along the pipeline.
  void Clamp(std::vector<int>& depths) const {
    for (size_t s = 0; s < depths.size(); ++s) {
      depths[s] = std::min(depths[s], std::max(most_[s], default_[s]));
      if (s == 0) continue;
      const int ahead = (depths[s - 1] - 1) * shape_.stages[s - 1].replicas;
      depths[s] = std::min(depths[s], ahead / shape_.stages[s].replicas + 1);
    }
  }

  void Try(std::vector<int> depths) {
    Clamp(depths);
    if (depths == best_ || depths == default_ || Spent()) return;
    const double ms = Period(depths);
    if (ms >= best_ms_ * kWorthwhile) return;
    best_ = std::move(depths);
    best_ms_ = ms;
  }

  void Trim(double limit_ms) {
    for (size_t s = best_.size(); s-- > 0;) {
      const int deepest = best_[s];
      for (int depth = default_[s]; depth < deepest && !Spent(); ++depth) {
        std::vector<int> depths = best_;
        depths[s] = depth;
        Clamp(depths);
        if (Period(depths) > limit_ms) continue;
        best_ = std::move(depths);
        break;
      }
    }
  }

  const std::string& schedule_;
  const PipelineShape& shape_;
  const SimulatedPipeline& pipeline_;
  const std::vector<int>& most_;
  std::vector<int> default_, best_;
  double best_ms_ = 0;
  int64_t& work_left_;
};

}  // namespace

std::vector<int> ChooseInFlight(const std::string& schedule, const PipelineShape& shape,
                                const SimulatedPipeline& pipeline, const std::vector<int>& most,
                                double bound_ms, int64_t& work_left) {
  return DepthSearch(schedule, shape, pipeline, most, work_left).Run(bound_ms);
}

}  // namespace pd
