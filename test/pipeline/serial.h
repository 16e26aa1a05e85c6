#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "pipeline/stage_setup.h"

namespace pd {

/// A training run as a test describes it.
struct TrainingCase {
  std::string model;  ///< model/1 text.
  std::vector<std::vector<std::string>>
      stages;                  ///< Layer names; empty: the whole model as one stage.
  std::vector<int> replicas;   ///< One a stage.
  std::vector<int> in_flight;  ///< One a stage; empty: defaults.
  int machine_ranks = 1;       ///< As PipelineSpec's.
  std::string backend = "ref";
  /// Of a rank, instead of `backend`, where set.
  std::function<std::unique_ptr<Backend>(int rank)> make_backend;
  std::vector<bool> recompute;  ///< One a stage; empty: none.
  int64_t batch_size = 4;
  std::vector<int64_t>
      segments;  ///< Samples of each training segment, from the front of the data set.
  std::vector<int64_t>
      evaluations;  ///< Samples of the evaluation after each of the first segments, likewise.
  double momentum = 0.9, weight_decay = 1e-3, lr = 0.05;
  uint64_t seed = 3;
};

/// Dense parameters ("fc1.weight"), momentum ("fc1.weight.momentum") and running statistics at the
/// end, the mean loss of each minibatch ("loss"), and the mean loss and the number of right answers
/// of each minibatch of the evaluations ("evaluation").
using TrainingResult = std::map<std::string, std::vector<float>>;

std::unique_ptr<Backend> BackendOf(const TrainingCase& c, int rank = 0);

/// The backends of this build that train in f32.
std::vector<std::string> TrainingBackends();

/// Shape with defaults filled in.
PipelineShape ShapeOf(const TrainingCase& c);

/// The learning rate of the round that starts at minibatch `b` of a segment.
inline double RateOf(const TrainingCase& c, int64_t b) {
  return c.lr / (1.0 + 0.1 * static_cast<double>(b));
}

/// The oracle of every schedule: the update rule by its definition, one minibatch after another, on
/// the whole model, with all weight versions kept. Shares with the runtime only the kernels of the
/// backend.
TrainingResult TrainSerially(const TrainingCase& c, const Dataset& data);

}  // namespace pd
