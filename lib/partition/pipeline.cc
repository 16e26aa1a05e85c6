#include "partition/pipeline.h"

#include <algorithm>

namespace pd {
namespace {

// Of the runtime: the header of a border message (stage/program.h), and the bytes at which a bucket
// of weights is closed (pipeline/stage_setup.cc).
constexpr int64_t kHeaderBytes = 64, kBucketBytes = 256 << 10;
// Beyond this many buckets the simulation takes several as one, to bound its work.
constexpr int64_t kMostBuckets = 64;

double ToMs(int64_t ps) { return static_cast<double>(ps) / kPsPerMs; }

// When each layer of a stage is through, after the start of its pass.
struct PassTimes {
  std::vector<double> forward_ms, backward_ms;  // one a layer of the graph
};

void AddStage(const CostGraph& graph, const StageChoice& choice, SimulatedPipeline& pipeline,
              PassTimes& times) {
  SimulatedPipeline::Stage stage;
  stage.first_worker = choice.first_worker;
  stage.workers = choice.workers;
  int64_t forward = 0, backward = 0, weights = 0;
  for (const int l : choice.layers) {
    forward += graph.layers[l].forward_ps;
    times.forward_ms[l] = ToMs(forward);
    weights += graph.layers[l].parameter_bytes;
  }
  if (choice.recompute) backward = forward;
  const int64_t close = std::max(kBucketBytes, weights / kMostBuckets);
  bool open = false;
  int64_t update = 0;
  for (auto it = choice.layers.rbegin(); it != choice.layers.rend(); ++it) {
    const CostGraph::Layer& layer = graph.layers[*it];
    backward += layer.backward_ps;
    times.backward_ms[*it] = ToMs(backward);
    if (layer.parameter_bytes == 0 && layer.update_ps == 0) continue;
    if (!open) {
      stage.buckets.emplace_back();
      update = 0;
    }
    SimulatedPipeline::Bucket& bucket = stage.buckets.back();
    update += layer.update_ps;
    bucket.bytes += layer.parameter_bytes;
    bucket.ready_ms = ToMs(backward);
    bucket.update_ms = ToMs(update);
    open = bucket.bytes < close;
  }
  stage.forward_ms = ToMs(forward);
  stage.backward_ms = ToMs(backward);
  pipeline.stages.push_back(std::move(stage));
}

void AddMessages(const CostGraph& graph, int l, const std::vector<int>& stage_of,
                 const PassTimes& times, SimulatedPipeline& pipeline) {
  const CostGraph::Layer& layer = graph.layers[l];
  if (layer.consumers.empty()) return;
  const int from = stage_of[l];
  const int64_t bytes = layer.activation_bytes + kHeaderBytes;
  std::vector<int> readers;
  for (const int consumer : layer.consumers) {
    const int to = stage_of[consumer];
    if (to == from || std::find(readers.begin(), readers.end(), to) != readers.end()) continue;
    readers.push_back(to);
    pipeline.messages.push_back({from, to, false, bytes, times.forward_ms[l]});
  }
  if (!layer.needs_gradient) return;
  // The longest run of last consumers in one stage sends a sum, when the first of them is through.
  const int last_stage = stage_of[layer.consumers.back()];
  auto run = layer.consumers.end();
  while (run != layer.consumers.begin() && stage_of[*std::prev(run)] == last_stage) --run;
  for (auto it = layer.consumers.begin(); it != run; ++it) {
    if (stage_of[*it] == from) continue;
    pipeline.messages.push_back({stage_of[*it], from, true, bytes, times.backward_ms[*it]});
  }
  if (last_stage == from) return;
  pipeline.messages.push_back({last_stage, from, true, bytes, times.backward_ms[*run]});
}

void AddGraphInputs(const CostGraph& graph, const std::vector<int>& stage_of,
                    SimulatedPipeline& pipeline) {
  const size_t stages = pipeline.stages.size();
  std::vector<bool> sent(graph.graph_input_bytes.size() * stages, false);
  for (int l = 0; l < graph.size(); ++l) {
    for (const int input : graph.layers[l].graph_inputs) {
      const auto at = static_cast<size_t>(input) * stages + static_cast<size_t>(stage_of[l]);
      if (stage_of[l] == 0 || sent[at]) continue;
      sent[at] = true;
      pipeline.messages.push_back(
          {0, stage_of[l], false, graph.graph_input_bytes[input] + kHeaderBytes, 0});
    }
  }
}

}  // namespace

double SimulatedPipeline::Stage::compute_ms() const {
  double ms = forward_ms + backward_ms;
  for (const Bucket& bucket : buckets) ms += bucket.update_ms;
  return ms;
}

double SimulatedPipeline::SlowestSpeed(const PipelineShape& shape, size_t stage) const {
  double slowest = Speed(stages[stage].worker(0));
  for (int r = 1; r < shape.stages[stage].replicas; ++r) {
    slowest = std::min(slowest, Speed(stages[stage].worker(r)));
  }
  return slowest;
}

int SimulatedPipeline::WorkersUsed(const PipelineShape& shape) const {
  int workers = 1;
  for (size_t s = 0; s < stages.size(); ++s) {
    for (int r = 0; r < shape.stages[s].replicas; ++r) {
      workers = std::max(workers, stages[s].worker(r) + 1);
    }
  }
  return workers;
}

SimulatedPipeline MakePipeline(const CostGraph& graph, const std::vector<StageChoice>& stages,
                               const Cluster& cluster) {
  SimulatedPipeline pipeline;
  for (const Cluster::Level& level : cluster.levels) {
    // Levels of one component add nothing.
    if (level.workers == 1 && &level != &cluster.levels.front()) continue;
    if (!pipeline.levels.empty() && pipeline.levels[0].workers == 1) pipeline.levels.clear();
    pipeline.levels.push_back(
        {level.workers, level.bandwidth_bytes_per_s / 1000, level.latency_ms});
  }
  pipeline.speeds = cluster.speeds;
  const auto layers = static_cast<size_t>(graph.size());
  PassTimes times{std::vector<double>(layers, 0), std::vector<double>(layers, 0)};
  std::vector<int> stage_of(layers, 0);
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const int l : stages[s].layers) stage_of[l] = static_cast<int>(s);
    AddStage(graph, stages[s], pipeline, times);
  }
  AddGraphInputs(graph, stage_of, pipeline);
  for (int l = 0; l < graph.size(); ++l) AddMessages(graph, l, stage_of, times, pipeline);
  return pipeline;
}

PipelineShape ShapeOf(const std::vector<StageChoice>& stages, const std::vector<int>& depths) {
  PipelineShape shape;
  for (size_t s = 0; s < stages.size(); ++s) {
    shape.stages.push_back({stages[s].replicas, depths.empty() ? 1 : depths[s]});
  }
  return shape;
}

std::vector<StageLoad> LoadsOf(const PipelineShape& shape, const SimulatedPipeline& pipeline) {
  std::vector<StageLoad> loads;
  for (size_t s = 0; s < pipeline.stages.size(); ++s) {
    const double m = shape.stages[s].replicas;
    StageLoad load;
    // The update is done once a round of m minibatches, by every replica, like the passes.
    load.compute_ms = pipeline.stages[s].compute_ms() / m;
    double weights = 0;
    for (const auto& bucket : pipeline.stages[s].buckets) {
      weights += static_cast<double>(bucket.bytes);
    }
    load.bytes_sent = load.bytes_received = 2 * (m - 1) / m * weights / m;
    loads.push_back(load);
  }
  for (const auto& message : pipeline.messages) {
    const auto bytes = static_cast<double>(message.bytes);
    loads[message.from].bytes_sent += bytes / shape.stages[message.from].replicas;
    loads[message.to].bytes_received += bytes / shape.stages[message.to].replicas;
  }
  return loads;
}

}  // namespace pd
