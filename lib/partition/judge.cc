#include "partition/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "partition/depth.h"
#include "partition/links.h"
#include "partition/replicas.h"

namespace pd {
namespace {

// Events and actions of the simulations of depths: for one plan, so that its prediction does not
// depend on what was judged before, and for all.
constexpr int kMostDepth = 16384;
constexpr int64_t kMostWork = 2'000'000, kMostWorkInAll = 60'000'000;

std::string NameOfCost(const ResourceCost& cost) {
  switch (cost.kind) {
    case ResourceCost::Kind::kCompute:
      return fmt::format("compute of stage {}", cost.stage);
    case ResourceCost::Kind::kLink:
    case ResourceCost::Kind::kAllReduce:
      return fmt::format("synchronisation of stage {}", cost.stage);
    case ResourceCost::Kind::kBorder:
      return fmt::format("the border between stages {} and {}", cost.stage, cost.stage + 1);
  }
  return "";
}

int StagesInTurn(const SimulatedPipeline& pipeline) {
  std::set<int> waiting = {static_cast<int>(pipeline.stages.size()) - 1};
  for (const auto& message : pipeline.messages) {
    if (message.gradient) waiting.insert(message.to);
  }
  return static_cast<int>(waiting.size());
}

}  // namespace

Judge::Judge(const CostGraph& graph, const PartitionOptions& options, const CostRule& rule,
             int64_t batch_size)
    : graph_(graph),
      options_(options),
      rule_(rule),
      batch_size_(batch_size),
      work_left_(kMostWorkInAll) {}

std::vector<StageChoice> Judge::Plain(std::vector<StageChoice> stages) {
  for (StageChoice& stage : stages) stage.recompute = false;
  return stages;
}

std::vector<int> Judge::DefaultDepths(const std::vector<StageChoice>& stages) {
  const PipelineShape shape = ShapeOf(stages, {});
  std::vector<int> depths;
  for (int s = 0; s < shape.num_stages(); ++s) depths.push_back(DefaultInFlight(shape, s));
  return depths;
}

int Judge::Workers(const std::vector<StageChoice>& stages) {
  int workers = 0;
  for (const StageChoice& stage : stages) workers += stage.replicas;
  return workers;
}

std::string Judge::Replicas(const std::vector<StageChoice>& stages) {
  std::vector<int> replicas;
  for (const StageChoice& stage : stages) replicas.push_back(stage.replicas);
  return FormatReplicas(replicas);
}

StageSums Judge::Sums(const StageChoice& stage) const {
  // The input stage holds layer 0, which reads no layer.
  return SumsOf(graph_, stage.layers, stage.layers[0] == 0);
}

double Judge::BoundMs(const std::vector<StageChoice>& stages) const {
  // Deeper stages need no less memory.
  return BusiestResource(ShapeOf(stages, {}), Pipeline(Recomputing(stages, DefaultDepths(stages))))
      .ms;
}

std::vector<StageChoice> Judge::Recomputing(std::vector<StageChoice> stages,
                                            const std::vector<int>& depths) const {
  for (size_t s = 0; s < stages.size(); ++s) {
    const auto fits = [&](bool recompute) {
      stages[s].recompute = recompute;
      const int64_t need = Memory(stages[s]).Bytes(depths[s]);
      return need <= options_.cluster.memory_bytes.value_or(need);
    };
    if (fits(false) || !options_.allow_recompute || !fits(true)) stages[s].recompute = false;
  }
  return stages;
}

bool Judge::Fits(const std::vector<StageChoice>& stages, const std::vector<int>& depths) const {
  for (size_t s = 0; s < stages.size(); ++s) {
    const int64_t need = Memory(stages[s]).Bytes(depths[s]);
    if (need > options_.cluster.memory_bytes.value_or(need)) return false;
  }
  return true;
}

std::vector<int> Judge::Depths(const std::vector<StageChoice>& stages) {
  const int64_t limit = options_.cluster.memory_bytes.value_or(std::numeric_limits<int64_t>::max());
  std::vector<StageChoice> shallow = Recomputing(stages, DefaultDepths(stages));
  std::vector<int> most;
  for (StageChoice& stage : shallow) {
    // The formulas of `arxiv` do not know what depth is worth.
    const bool more = rule_.model == CostModel::kRuntime && options_.allow_recompute;
    stage.recompute = stage.recompute || more;
    most.push_back(Memory(stage).MaxInFlight(limit, kMostDepth));
  }
  std::map<std::vector<bool>, SimulatedPipeline> pipelines;  // By the stages that recompute.
  const auto pipeline_of = [&](const std::vector<int>& depths) -> const SimulatedPipeline& {
    const std::vector<StageChoice> chosen = Recomputing(stages, depths);
    std::vector<bool> recompute;
    for (const StageChoice& stage : chosen) recompute.push_back(stage.recompute);
    const auto known = pipelines.find(recompute);
    if (known != pipelines.end()) return known->second;
    return pipelines.emplace(recompute, Pipeline(chosen)).first->second;
  };
  const int64_t given = std::min(kMostWork, work_left_);
  int64_t left = given;
  std::vector<int> depths = ChooseInFlight(options_.schedule, ShapeOf(stages, {}), pipeline_of,
                                           most, BoundMs(stages), left);
  work_left_ -= given - left;
  return depths;
}

// `arxiv` with one minibatch in flight: the way through all stages and borders.
double Judge::WayMs(const std::vector<StageChoice>& stages) const {
  std::vector<bool> before(static_cast<size_t>(graph_.size()), false);
  double ps = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageChoice& stage = stages[s];
    double speed = rule_.SlowestSpeed(stage.worker(0), 1);
    for (int r = 1; r < stage.replicas; ++r) {
      speed = std::min(speed, rule_.SlowestSpeed(stage.worker(r), 1));
    }
    ps += rule_.ComputePs(Sums(stage), stage.replicas, speed, stage.recompute);
    for (const int l : stage.layers) before[l] = true;
    if (s + 1 == stages.size()) break;
    // Over the link of the innermost level that joins both stages.
    const int from = stage.worker(stage.replicas - 1), to = stages[s + 1].worker(0);
    double bytes_per_ms = rule_.bytes_per_ms;
    int unit = 1;
    for (const CostRule::Level& level : rule_.levels) {
      if (from / unit != to / unit) bytes_per_ms = level.bytes_per_ms;
      unit *= level.workers;
    }
    const auto bytes = static_cast<double>(CrossingBytes(graph_, before));
    ps += 2 * bytes / bytes_per_ms * kPsPerMs;
  }
  return ps / kPsPerMs;
}

Bottleneck Judge::FormulaBound(const std::vector<StageChoice>& stages, double bottleneck_ms) const {
  if (rule_.several_levels()) return {"the slowest stage or border", bottleneck_ms};
  Bottleneck most{"", -1};
  for (const ResourceCost& cost : ResourceCosts(graph_, stages, rule_)) {
    if (cost.ms > most.ms) most = {NameOfCost(cost), cost.ms};
  }
  return most;
}

Judge::Verdict Judge::Of(std::vector<StageChoice> stages, double bottleneck_ms,
                         bool one_in_flight) {
  stages = Plain(std::move(stages));
  if (rule_.model == CostModel::kArxiv) return Predict(stages, bottleneck_ms, one_in_flight);
  auto& known = known_[one_in_flight ? 1 : 0];
  for (const auto& [judged, verdict] : known) {
    if (judged == stages) return verdict;
  }
  known.emplace_back(stages, Predict(stages, bottleneck_ms, one_in_flight));
  return known.back().second;
}

Judge::Verdict Judge::Predict(const std::vector<StageChoice>& stages, double bottleneck_ms,
                              bool one_in_flight) {
  Verdict verdict;
  verdict.depths = one_in_flight ? std::vector<int>(stages.size(), 1) : Depths(stages);
  verdict.stages = Recomputing(stages, verdict.depths);
  const SimulatedPipeline pipeline = Pipeline(verdict.stages);
  Prediction& prediction = verdict.prediction;
  prediction.replicas = Replicas(stages);
  if (rule_.model == CostModel::kArxiv) {
    prediction.bound = FormulaBound(verdict.stages, bottleneck_ms);
    prediction.minibatch_ms =
        one_in_flight && stages.size() > 1 ? WayMs(verdict.stages) : prediction.bound.ms;
  } else {
    prediction.bound = BusiestResource(ShapeOf(stages, {}), pipeline);
    // The measured stretch of a pipeline that takes long to settle may lie a little below the
    // bound.
    prediction.minibatch_ms = std::max(
        prediction.bound.ms,
        Simulate(options_.schedule, ShapeOf(stages, verdict.depths), pipeline).minibatch_ms);
  }
  if (one_in_flight) prediction.stages_in_turn = StagesInTurn(pipeline);
  prediction.samples_per_s = static_cast<double>(batch_size_) * 1000 / prediction.minibatch_ms;
  prediction.fits = Fits(verdict.stages, verdict.depths);
  return verdict;
}

}  // namespace pd
