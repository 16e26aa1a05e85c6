// From a profile to a plan: choose the stages (search.h), then the depths (depth.h), then predict
// what the plan and its rivals do, and write all of it down.
#include "partition/partition.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "model/model.h"
#include "partition/depth.h"
#include "partition/search.h"
#include "partition/simulator.h"

namespace pd {
namespace {

constexpr int kMostWorkers = 4096;

// The one level that counts: levels of one component add nothing.
Cluster::Level OnlyLevel(const Cluster& cluster) {
  PD_REQUIRE(!cluster.levels.empty(), "cluster: expected a level, found none");
  const Cluster::Level* only = nullptr;
  for (const Cluster::Level& level : cluster.levels) {
    if (level.workers == 1) continue;
    PD_REQUIRE(only == nullptr, "clusters of more than one level are not available yet");
    only = &level;
  }
  for (const double speed : cluster.speeds) {
    PD_REQUIRE(speed == cluster.speeds[0], "workers of different speeds are not available yet");
  }
  return only == nullptr ? cluster.levels[0] : *only;
}

template <typename Value>
Value ParseWord(std::string_view what, std::string_view text,
                const std::vector<std::pair<std::string_view, Value>>& known) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : known) {
    if (name == text) return value;
    names.push_back(name);
  }
  const std::string near = Nearest(text, names);
  Throw(ErrorCode::kInvalidInput, "{}: expected one of {}, found \"{}\"{}", what,
        fmt::join(names, ", "), text,
        near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
}

// Known where the profile has its model.
std::vector<GraphInput> GraphInputs(const Profile& profile) {
  std::vector<GraphInput> inputs;
  if (!profile.model) return inputs;
  const Model model = Model::Parse(*profile.model);
  for (const Model::Input& input : model.inputs()) {
    inputs.push_back({input.name, static_cast<int64_t>(input.spec.Bytes(profile.batch_size))});
  }
  return inputs;
}

class Planner {
 public:
  Planner(const Profile& profile, const PartitionOptions& options)
      : profile_(profile),
        options_(options),
        graph_(MakeCostGraph(profile.layers, GraphInputs(profile))),
        level_(OnlyLevel(options.cluster)),
        workers_(options.cluster.workers()) {
    PD_REQUIRE(workers_ <= kMostWorkers, "expected at most {} workers, found {}", kMostWorkers,
               workers_);
    rule_ = {options.cost_model, level_.bandwidth_bytes_per_s / 1000};
  }

  PartitionResult Run() {
    PartitionResult result;
    std::vector<StageChoice> stages = Choose(options_.strategy);
    const bool one_in_flight = options_.strategy == Strategy::kModelParallel;
    std::vector<int> depths = Depths(stages, one_in_flight);
    result.predicted = Predict(stages, depths);
    const std::vector<StageChoice> all = {{0, graph_.size(), workers_}};
    const std::vector<StageChoice> one = {{0, graph_.size(), 1}};
    const std::vector<StageChoice> straight = Unlimited(/*replicate=*/false);
    result.data_parallel = Predict(all, {1});
    result.model_parallel = Predict(straight, std::vector<int>(straight.size(), 1));
    result.one_worker = Predict(one, {1});
    if (options_.strategy == Strategy::kAuto && rule_.model == CostModel::kRuntime) {
      for (const std::vector<StageChoice>& rival : Rivals()) {
        const std::vector<int> rival_depths = Depths(rival, false);
        const Prediction prediction = Predict(rival, rival_depths);
        if (!IsBetter(rival, prediction, stages, result.predicted)) continue;
        stages = rival;
        depths = rival_depths;
        result.predicted = prediction;
      }
    }
    Bound(stages, result);
    Describe(stages, depths, result);
    return result;
  }

 private:
  static int Workers(const std::vector<StageChoice>& stages) {
    int workers = 0;
    for (const StageChoice& stage : stages) workers += stage.replicas;
    return workers;
  }

  // What the simulation compares with the search's optimum, which a bound has chosen: the best
  // straight plan, the best plans on fewer workers, data parallelism, one worker.
  std::vector<std::vector<StageChoice>> Rivals() const {
    constexpr int kFew = 8;  // workers, up to which every smaller number is tried
    std::vector<std::vector<StageChoice>> rivals;
    const auto add = [&](const SearchOptions& search) {
      if (auto found = FindBestPlan(graph_, search)) rivals.push_back(found->stages);
    };
    rivals.push_back({{0, graph_.size(), workers_}});
    add(Search(/*replicate=*/false, /*one_in_flight=*/false));
    for (int workers = workers_ - 1; workers > 1 && workers_ <= kFew; --workers) {
      SearchOptions search = Search(/*replicate=*/true, /*one_in_flight=*/false);
      search.max_workers = workers;
      add(search);
    }
    rivals.push_back({{0, graph_.size(), 1}});
    return rivals;
  }

  // Whether `rival` should replace `stages`: faster, or on fewer workers and slower by nothing that
  // counts.
  static bool IsBetter(const std::vector<StageChoice>& rival, const Prediction& rivals,
                       const std::vector<StageChoice>& stages, const Prediction& own) {
    constexpr double kRounding = 1e-9, kNothing = 1e-3;
    if (!rivals.fits) return false;
    if (rivals.minibatch_ms < own.minibatch_ms * (1 - kRounding)) return true;
    return rivals.minibatch_ms <= own.minibatch_ms * (1 + kNothing) &&
           Workers(rival) < Workers(stages);
  }

  SearchOptions Search(bool replicate, bool one_in_flight) const {
    SearchOptions search;
    search.rule = rule_;
    search.max_workers = workers_;
    search.replicate = replicate;
    search.one_in_flight = one_in_flight;
    search.memory_bytes = options_.cluster.memory_bytes;
    return search;
  }

  // The best stages whatever their memory: for the rows beside the plan.
  std::vector<StageChoice> Unlimited(bool replicate) const {
    SearchOptions search = Search(replicate, /*one_in_flight=*/true);
    search.memory_bytes.reset();
    return FindBestPlan(graph_, search)->stages;
  }

  std::vector<StageChoice> Choose(Strategy strategy) const {
    if (strategy == Strategy::kDataParallel) {
      std::vector<StageChoice> all = {{0, graph_.size(), workers_}};
      const int64_t need = Memory(all[0]).Bytes(1);
      if (need > options_.cluster.memory_bytes.value_or(need)) FailMemory(all, need, false);
      return all;
    }
    SearchOptions search =
        Search(strategy == Strategy::kAuto, strategy == Strategy::kModelParallel);
    if (auto found = FindBestPlan(graph_, search)) return found->stages;
    const int64_t least = SmallestMemory(graph_, search);
    search.memory_bytes = least;
    FailMemory(FindBestPlan(graph_, search)->stages, least, search.one_in_flight);
  }

  StageSums Sums(const StageChoice& stage) const {
    return SumsFrom(graph_, stage.begin)[static_cast<size_t>(stage.end - stage.begin) - 1];
  }
  MemoryEstimate Memory(const StageChoice& stage) const { return {Sums(stage), stage.replicas}; }

  // `stages` need the least memory of all plans, `least`: says which of them needs it, and for
  // which layer.
  [[noreturn]] void FailMemory(const std::vector<StageChoice>& stages, int64_t least,
                               bool one_in_flight) const {
    const PipelineShape shape = Shape(stages);
    size_t s = 0;
    const auto depth = [&](size_t at) {
      return one_in_flight ? 1 : DefaultInFlight(shape, static_cast<int>(at));
    };
    while (Memory(stages[s]).Bytes(depth(s)) < least) ++s;
    int tightest = stages[s].begin;
    int64_t share = -1;
    for (int l = stages[s].begin; l < stages[s].end; ++l) {
      const CostGraph::Layer& layer = graph_.layers[l];
      const int64_t own = (depth(s) + 2) * layer.parameter_bytes + depth(s) * layer.stash_bytes;
      if (own > share) {
        share = own;
        tightest = l;
      }
    }
    Throw(ErrorCode::kInvalidInput,
          "no plan fits {} ({} bytes) a worker: the tightest layer is \"{}\", {} of the {} that "
          "its stage "
          "of {} layers needs with {} in flight; the smallest memory that works is {}B",
          FormatBytes(static_cast<double>(*options_.cluster.memory_bytes)),
          *options_.cluster.memory_bytes, profile_.layers[tightest].name,
          FormatBytes(static_cast<double>(share)), FormatBytes(static_cast<double>(least)),
          stages[s].end - stages[s].begin, depth(s), least);
  }

  PipelineShape Shape(const std::vector<StageChoice>& stages) const {
    PipelineShape shape;
    for (const StageChoice& stage : stages) shape.stages.push_back({stage.replicas, 1});
    return shape;
  }

  std::vector<int> Depths(const std::vector<StageChoice>& stages, bool one_in_flight) const {
    if (one_in_flight) return std::vector<int>(stages.size(), 1);
    std::vector<int> most;
    double bound_ms = 0;
    for (const StageChoice& stage : stages) {
      const int64_t limit = options_.cluster.memory_bytes.value_or(INT64_MAX);
      most.push_back(Memory(stage).MaxInFlight(limit, 4 * kMostWorkers));
      const StageSums sums = Sums(stage);
      const CostRule compute = {CostModel::kRuntime, rule_.bytes_per_ms};
      bound_ms = std::max(bound_ms, compute.ComputeMs(sums, stage.replicas));
    }
    return ChooseInFlight(options_.schedule, Shape(stages), Pipeline(stages), most, bound_ms);
  }

  SimulatedPipeline Pipeline(const std::vector<StageChoice>& stages) const {
    return MakePipeline(graph_, stages, rule_.bytes_per_ms, level_.latency_ms);
  }

  // Costs of stages and borders under the rule; the first of the largest is the bottleneck.
  void Bound(const std::vector<StageChoice>& stages, PartitionResult& result) const {
    const std::vector<int64_t> crossing = CrossingBytes(graph_);
    result.bottleneck_ms = -1;
    const auto consider = [&](double ms, const std::string& what) {
      if (ms <= result.bottleneck_ms) return;
      result.bottleneck_ms = ms;
      result.bound_by = what;
    };
    for (size_t s = 0; s < stages.size(); ++s) {
      const StageSums sums = Sums(stages[s]);
      const std::string link =
          rule_.model == CostModel::kArxiv ? "synchronisation of stage {}" : "links of stage {}";
      consider(rule_.ComputeMs(sums, stages[s].replicas), fmt::format("compute of stage {}", s));
      consider(rule_.LinkMs(sums, stages[s].replicas), fmt::format(fmt::runtime(link), s));
      if (s + 1 < stages.size()) {
        consider(rule_.BorderMs(crossing[static_cast<size_t>(sums.end)]),
                 fmt::format("the border between stages {} and {}", s, s + 1));
      }
    }
  }

  Prediction Predict(const std::vector<StageChoice>& stages, const std::vector<int>& depths) const {
    double ms = 0;
    if (rule_.model == CostModel::kArxiv) {
      ms = FormulaMs(stages, depths);
    } else {
      PipelineShape shape = Shape(stages);
      for (size_t s = 0; s < stages.size(); ++s) shape.stages[s].in_flight = depths[s];
      ms = Simulate(options_.schedule, shape, Pipeline(stages)).minibatch_ms;
    }
    bool fits = true;
    for (size_t s = 0; s < stages.size(); ++s) {
      const int64_t need = Memory(stages[s]).Bytes(depths[s]);
      fits = fits && need <= options_.cluster.memory_bytes.value_or(need);
    }
    return {ms, static_cast<double>(profile_.batch_size) * 1000 / ms, fits};
  }

  // `arxiv`: the bottleneck, or with one minibatch in flight the way through all stages and
  // borders.
  double FormulaMs(const std::vector<StageChoice>& stages, const std::vector<int>& depths) const {
    const std::vector<int64_t> crossing = CrossingBytes(graph_);
    double sum = 0, largest = 0;
    for (const StageChoice& stage : stages) {
      const double ms = rule_.StageMs(Sums(stage), stage.replicas);
      const double border = rule_.BorderMs(crossing[static_cast<size_t>(stage.end)]);
      sum += ms + border;
      largest = std::max({largest, ms, border});
    }
    return stages.size() > 1 && depths[0] == 1 ? sum : largest;
  }

  void Describe(const std::vector<StageChoice>& stages, const std::vector<int>& depths,
                PartitionResult& result) const {
    Plan& plan = result.plan;
    plan.model = profile_.model;
    plan.batch_size = profile_.batch_size;
    plan.schedule = options_.schedule;
    plan.layers = profile_.layers;
    plan.cluster = options_.cluster;
    plan.device = profile_.device;
    plan.command = options_.command;
    Predicted predicted;
    predicted.minibatch_ms = result.predicted.minibatch_ms;
    predicted.samples_per_s = result.predicted.samples_per_s;
    predicted.data_parallel_samples_per_s = result.data_parallel.samples_per_s;
    predicted.memory_bytes.assign(static_cast<size_t>(workers_), 0);
    const PipelineShape shape = Shape(stages);
    int rank = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      const StageSums sums = Sums(stages[s]);
      StagePlan stage;
      StageReport report;
      report.begin = stages[s].begin;
      report.end = stages[s].end;
      for (int l = sums.begin; l < sums.end; ++l) stage.layers.push_back(profile_.layers[l].name);
      const double m = stages[s].replicas;
      report.compute_ms = CostRule{CostModel::kRuntime, 1}.ComputeMs(sums, 1);
      report.out_bytes = sums.out_bytes;
      report.all_reduce_bytes = 2 * (m - 1) / m * static_cast<double>(sums.parameter_bytes);
      report.memory_bytes = Memory(stages[s]).Bytes(depths[s]);
      report.in_flight = depths[s];
      if (depths[s] != DefaultInFlight(shape, static_cast<int>(s))) stage.in_flight = depths[s];
      for (int r = 0; r < stages[s].replicas; ++r) {
        predicted.memory_bytes[static_cast<size_t>(rank)] = report.memory_bytes;
        stage.workers.push_back(rank++);
      }
      report.workers = stage.workers;
      result.stages.push_back(std::move(report));
      plan.stages.push_back(std::move(stage));
    }
    plan.predicted = std::move(predicted);
    result.idle_workers = workers_ - rank;
  }

  const Profile& profile_;
  const PartitionOptions& options_;
  CostGraph graph_;
  Cluster::Level level_;
  int workers_;
  CostRule rule_;
};

}  // namespace

Strategy ParseStrategy(std::string_view text) {
  return ParseWord<Strategy>("--strategy", text,
                             {{"auto", Strategy::kAuto},
                              {"data-parallel", Strategy::kDataParallel},
                              {"model-parallel", Strategy::kModelParallel},
                              {"straight", Strategy::kStraight}});
}

CostModel ParseCostModel(std::string_view text) {
  return ParseWord<CostModel>("--cost-model", text,
                              {{"runtime", CostModel::kRuntime}, {"arxiv", CostModel::kArxiv}});
}

void CheckSchedule(std::string_view name) {
  std::vector<std::pair<std::string_view, bool>> known;
  for (const std::string_view each : ScheduleNames()) known.emplace_back(each, true);
  ParseWord<bool>("--schedule", name, known);
}

PartitionResult Partition(const Profile& profile, const PartitionOptions& options) {
  CheckSchedule(options.schedule);
  return Planner(profile, options).Run();
}

}  // namespace pd
