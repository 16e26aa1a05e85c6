#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/comm.h"
#include "pipeline/message.h"
#include "pipeline/serial.h"
#include "pipeline/worker.h"
#include "train/metrics.h"
#include "transport/loopback/loopback.h"

namespace pd {

/// Ranks in order, stage by stage, and all sizes that `c` announces.
PipelineSpec SpecOf(const TrainingCase& c, const Model& model, const Cut& cut);

/// One rank's part of a run of `c`, the whole pipeline being the ranks of `transport`: rank by
/// rank, stage by stage. Every rank makes the same calls.
class Session {
 public:
  using Hook = std::function<void()>;

  /// `backend`: the case's when null.
  Session(const TrainingCase& c, Transport& transport, std::unique_ptr<Backend> backend = nullptr);

  /// Nothing arrives any more when the worker's memory goes.
  ~Session() { comm_.Stop(); }

  /// Trains on the first `samples` samples; `between_actions` as Segment's. Returns the metrics of
  /// each minibatch on rank 0, nothing on others.
  std::vector<MinibatchMetrics> Train(const Dataset& data, int64_t samples, Hook hook = nullptr);
  std::vector<MinibatchMetrics> Evaluate(const Dataset& data, int64_t samples);

  /// Replaces parameters and running statistics by name; those that live elsewhere are passed over.
  void Import(const TrainingResult& values);
  /// What this rank holds, by name.
  TrainingResult Export() const;

  Comm& comm() { return comm_; }
  Worker& worker() { return *worker_; }
  const PipelineSpec& spec() const { return spec_; }

 private:
  std::vector<MinibatchMetrics> Run(const Dataset& data, int64_t samples, bool training, Hook hook);

  const TrainingCase& case_;
  Model model_;
  Cut cut_;
  PipelineSpec spec_;
  Comm comm_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Worker> worker_;
  MetricsCollector collector_;
  int64_t number_ = 0, segment_ = 0;
};

/// Runs `rank_main` on a thread for each rank of a loopback. The first error is
/// thrown again when all have ended; it ends the others. `copy` as LoopbackHub's.
void OnThreads(int ranks, const std::function<void(Transport&)>& rank_main,
               size_t eager_bytes = 4096, LoopbackHub::Copy copy = nullptr);

}  // namespace pd
