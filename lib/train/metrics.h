#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/comm.h"
#include "pipeline/message.h"
#include "pipeline/stage_setup.h"

namespace pd {

/// The loss over many targets, as it is reported.
struct LossMeans {
  double loss = 0, accuracy = 0;
  std::optional<double> top5_accuracy;  ///< Where there are more than five classes.
  std::optional<double> perplexity;     ///< e^loss, where targets are sequences.
};

/// Sums of the main loss over minibatches: every counted target weighs the same.
class LossSums {
 public:
  explicit LossSums(const Model& model);
  void Add(const MinibatchMetrics& metrics);
  void Clear();
  int64_t samples() const { return samples_; }
  bool has_perplexity() const { return has_perplexity_; }
  /// Without any counted target (device timed has none) all are 0, and there is no perplexity.
  LossMeans Means() const;

 private:
  bool has_top5_, has_perplexity_;
  int64_t samples_ = 0;
  double loss_ = 0, counted_ = 0, right_ = 0, top5_ = 0;
};

/// Receives the losses of a segment on the metrics rank, in minibatch order, whichever replica
/// computed them.
class MetricsCollector {
 public:
  MetricsCollector(const PipelineSpec& spec, Comm& comm, int loss_stage);

  /// `segment` as Worker counts them, from 1.
  void Begin(int64_t segment, int64_t minibatches);
  /// The next minibatch's metrics if they are there; nothing waits. Null: none now, or none left.
  const MinibatchMetrics* Poll();
  /// As Poll, but waits; null only when none is left.
  const MinibatchMetrics* Wait();

 private:
  struct Source {
    Ticket ticket;
    MinibatchMetrics buffer;
  };
  void Post(int64_t minibatch);
  Source& SourceOf(int64_t minibatch);

  Comm& comm_;
  std::vector<int> ranks_;
  std::unique_ptr<Source[]> sources_;
  int64_t segment_ = 0, next_ = 0, end_ = 0;
  MinibatchMetrics current_;
};

/// JSON Lines: one strict JSON object an event, each line written whole.
class MetricsWriter {
 public:
  /// Empty path or "-": standard output. Throws kIo.
  explicit MetricsWriter(const std::string& path);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  /// Writes `line` and a newline.
  void Write(std::string_view line);
  void Train(int64_t epoch, int64_t minibatch, double loss, double samples_per_s, double time_s);
  void Eval(int64_t epoch, int64_t minibatch, const LossMeans& means, double time_s,
            double train_time_s);

 private:
  std::string path_;
  int fd_;
};

/// A number as JSON: shortest text that reads back the same; null for what JSON cannot say.
std::string JsonNumber(double value);

}  // namespace pd
