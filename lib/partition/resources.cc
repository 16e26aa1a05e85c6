#include "partition/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "partition/network.h"

namespace pd {
namespace {

// Replicas of two stages meet in a cycle of lcm(r, r') minibatches; of longer ones this many are
// looked at.
constexpr int64_t kMostTurns = 4096;

// Bytes that pass the links of machines, or of larger units, for each minibatch.
class OuterLinks {
 public:
  OuterLinks(const PipelineShape& shape, const SimulatedPipeline& pipeline, size_t level)
      : shape_(shape), pipeline_(pipeline), level_(level) {
    for (size_t l = 0; l < level; ++l) unit_ *= pipeline.levels[l].workers;
    const int workers = pipeline.WorkersUsed(shape);
    out_.assign(static_cast<size_t>((workers + unit_ - 1) / unit_), 0);
    in_ = out_;
    for (const auto& message : pipeline.messages) AddMessage(message);
    const SimulatedNetwork network(pipeline.levels, workers);
    for (size_t s = 0; s < pipeline.stages.size(); ++s) AddAllReduce(network, s);
  }

  void Consider(Bottleneck& most) const {
    for (size_t u = 0; u < out_.size(); ++u) {
      const double ms = std::max(out_[u], in_[u]) / pipeline_.levels[level_].bytes_per_ms;
      if (ms <= most.ms) continue;
      most = {level_ == 1 ? fmt::format("links of machine {}", u)
                          : fmt::format("links of unit {} of level {}", u, level_),
              ms};
    }
  }

 private:
  void AddMessage(const SimulatedPipeline::Message& message) {
    const int64_t from = shape_.stages[message.from].replicas,
                  to = shape_.stages[message.to].replicas;
    const int64_t turns = std::min(kMostTurns, std::lcm(from, to));
    for (int64_t b = 0; b < turns; ++b) {
      const int sender = pipeline_.stages[message.from].worker(static_cast<int>(b % from));
      const int receiver = pipeline_.stages[message.to].worker(static_cast<int>(b % to));
      if (sender / unit_ == receiver / unit_) continue;
      const double bytes = static_cast<double>(message.bytes) / static_cast<double>(turns);
      out_[static_cast<size_t>(sender / unit_)] += bytes;
      in_[static_cast<size_t>(receiver / unit_)] += bytes;
    }
  }

  void AddAllReduce(const SimulatedNetwork& network, size_t s) {
    const auto& stage = pipeline_.stages[s];
    const int replicas = shape_.stages[s].replicas;
    if (replicas == 1) return;
    const auto group = network.MakeGroup(stage, replicas);
    double weights = 0;
    for (const auto& bucket : stage.buckets) weights += static_cast<double>(bucket.bytes);
    for (int r = 0; r < replicas; ++r) {
      const double share = group.share[static_cast<size_t>(r) * pipeline_.levels.size() + level_];
      const double bytes = 2 * share * weights / replicas;
      out_[static_cast<size_t>(stage.worker(r) / unit_)] += bytes;
      in_[static_cast<size_t>(stage.worker(r) / unit_)] += bytes;
    }
  }

  const PipelineShape& shape_;
  const SimulatedPipeline& pipeline_;
  size_t level_;
  int unit_ = 1;
  std::vector<double> out_, in_;
};

}  // namespace

Bottleneck BusiestResource(const PipelineShape& shape, const SimulatedPipeline& pipeline) {
  Bottleneck most{"", -1};
  const auto consider = [&](double ms, std::string what) {
    if (ms > most.ms) most = {std::move(what), ms};
  };
  const std::vector<StageLoad> loads = LoadsOf(shape, pipeline);
  for (size_t s = 0; s < loads.size(); ++s) {
    consider(loads[s].compute_ms / pipeline.SlowestSpeed(shape, s),
             fmt::format("compute of stage {}", s));
  }
  for (size_t s = 0; s < loads.size(); ++s) {
    consider(
        std::max(loads[s].bytes_sent, loads[s].bytes_received) / pipeline.levels[0].bytes_per_ms,
        fmt::format("links of stage {}", s));
  }
  for (size_t l = 1; l < pipeline.levels.size(); ++l) {
    OuterLinks(shape, pipeline, l).Consider(most);
  }
  return most;
}

}  // namespace pd
