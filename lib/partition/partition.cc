// Planning: the search (search.h) proposes stages that minimise a bound; the simulator judges them
// and a few rivals, and chooses their depths (judge.h); the winner is described as a plan/1.
#include "partition/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "model/model.h"
#include "partition/depth.h"
#include "partition/judge.h"
#include "partition/links.h"
#include "partition/search.h"

namespace pd {
namespace {

constexpr int kMostWorkers = 4096;

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

// The layers of --cut-after as indices.
std::vector<int> CutLayers(const Profile& profile, const CostGraph& graph,
                           const std::vector<std::string>& names) {
  std::vector<int> layers;
  for (const std::string& name : names) {
    std::vector<std::string_view> known;
    for (const LayerCost& layer : profile.layers) known.push_back(layer.name);
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) {
      const std::string near = Nearest(name, known);
      Throw(ErrorCode::kInvalidInput, "--cut-after: expected the name of a layer, found \"{}\"{}",
            name, near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
    }
    layers.push_back(static_cast<int>(found - known.begin()));
    PD_REQUIRE(!graph.layers[layers.back()].consumers.empty(),
               "--cut-after: expected a layer that others read, found \"{}\"", name);
  }
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

class Planner {
 public:
  Planner(const Profile& profile, const PartitionOptions& options)
      : profile_(profile),
        options_(options),
        graph_(MakeCostGraph(profile.layers, GraphInputs(profile))),
        workers_(options.cluster.workers()),
        rule_(CostRule::Of(options.cost_model, options.cluster)),
        cut_after_(CutLayers(profile, graph_, options.cut_after)),
        judge_(graph_, options_, rule_, profile.batch_size) {
    PD_REQUIRE(workers_ <= kMostWorkers, "expected at most {} workers, found {}", kMostWorkers,
               workers_);
    PD_REQUIRE(options.replicas.empty() || options.strategy == Strategy::kAuto,
               "--replicas: expected none beside a --strategy other than auto");
    const int needed = std::accumulate(options.replicas.begin(), options.replicas.end(), 0);
    PD_REQUIRE(needed <= workers_, "--replicas: expected at most {} in all, found {}",
               Counted(workers_, "worker"), needed);
    PD_REQUIRE(options.cut_after.empty() || options.strategy != Strategy::kDataParallel,
               "--cut-after: expected none beside --strategy data-parallel, found \"{}\"",
               options.cut_after.empty() ? "" : options.cut_after[0]);
  }

  PartitionResult Run() {
    PartitionResult result;
    Say(fmt::format("searching the best plan of {} on {}", Counted(graph_.size(), "layer"),
                    Counted(workers_, "worker")));
    const bool one_in_flight = options_.strategy == Strategy::kModelParallel;
    const SearchResult found = Choose();
    Say("simulating the best plan");
    Judge::Verdict best = judge_.Of(found.stages, found.bottleneck_ms, one_in_flight);
    if (options_.compare) PredictBaselines(result);
    result.exact = found.exact;
    result.lower_bound_ms = found.lower_bound_ms;
    result.bottleneck_ms = found.bottleneck_ms;
    if (options_.strategy == Strategy::kAuto && rule_.model == CostModel::kRuntime) {
      best = FastestOf(std::move(best), found, result);
      result.bottleneck_ms = BottleneckMs(best.stages);
    }
    Describe(best, result);
    return result;
  }

 private:
  void Say(const std::string& text) const {
    if (options_.progress) options_.progress(text);
  }

  // ---- Candidates.

  SearchOptions Search(bool replicate, bool one_in_flight) const {
    SearchOptions search;
    search.rule = rule_;
    search.max_workers = workers_;
    search.replicate = replicate;
    search.one_in_flight = one_in_flight;
    search.memory_bytes = options_.cluster.memory_bytes;
    search.allow_recompute = options_.allow_recompute;
    search.cut_after = cut_after_;
    search.replicas = options_.replicas;
    search.steps_left = &steps_left_;
    return search;
  }

  // One stage with all layers.
  std::vector<StageChoice> Whole(int first_worker, int replicas) const {
    StageChoice stage{{}, first_worker, replicas};
    for (int l = 0; l < graph_.size(); ++l) stage.layers.push_back(l);
    return judge_.Recomputing({stage}, {1});
  }

  std::vector<StageChoice> OneWorker() const {
    const std::vector<double>& speeds = options_.cluster.speeds;
    const auto fastest = std::max_element(speeds.begin(), speeds.end());
    return Whole(static_cast<int>(fastest - speeds.begin()), 1);
  }

  double BottleneckMs(const std::vector<StageChoice>& stages) const {
    if (rule_.model == CostModel::kArxiv && rule_.several_levels()) {
      // Only the search knows the recurrence: it is given no choice.
      SearchOptions search = Search(true, true);
      search.memory_bytes.reset();
      search.replicas.clear();
      for (const StageChoice& stage : stages) search.replicas.push_back(stage.replicas);
      const auto found = FindBestPlan(graph_, search);
      return found ? found->bottleneck_ms : 0;
    }
    double most = 0;
    for (const ResourceCost& cost : ResourceCosts(graph_, stages, rule_)) {
      most = std::max(most, cost.ms);
    }
    return most;
  }

  SearchResult Choose() const {
    if (options_.strategy == Strategy::kDataParallel) {
      SearchResult all;
      all.stages = Whole(0, workers_);
      const int64_t need = judge_.Memory(all.stages[0]).Bytes(1);
      if (need > options_.cluster.memory_bytes.value_or(need)) FailMemory(all.stages, need, false);
      all.bottleneck_ms = all.lower_bound_ms = BottleneckMs(all.stages);
      return all;
    }
    SearchOptions search =
        Search(options_.strategy == Strategy::kAuto, options_.strategy == Strategy::kModelParallel);
    if (auto found = FindBestPlan(graph_, search)) return *found;
    const int64_t least = SmallestMemory(graph_, search);
    PD_REQUIRE(least < std::numeric_limits<int64_t>::max(),
               "--cut-after, --replicas: no plan of {} on {} has these cuts and replicas",
               Counted(graph_.size(), "layer"), Counted(workers_, "worker"));
    search.memory_bytes = least;
    const auto tight = FindBestPlan(graph_, search);
    PD_CHECK(tight.has_value(), "no plan within {} bytes", least);
    FailMemory(tight->stages, least, search.one_in_flight);
  }

  // What the simulation compares with the search's optimum: data parallelism, the best plans, the
  // best on slower links, in less memory, and the best straight ones, each on every number of
  // workers. Slower links, because the cost lets messages overlap with everything, which takes more
  // of faster ones. Fewer workers, so that all that could be taken for fewer workers can be taken
  // for more; grids of links and memory likewise, as far as they reach. Rivals with a larger cost
  // than the shortest period so far, `fastest_ms`, are left out by the searches.
  template <typename Use>
  void ForEachRival(const SearchResult& best, const double& fastest_ms, const Use& use) const {
    constexpr int64_t kLong = 50'000;           // ideals · workers
    constexpr int64_t kLessMemory = 4'000'000;  // their squares' product, each a search
    constexpr int kFewIdeals = 100;
    const bool quick = IsQuick(best);
    const bool free = cut_after_.empty() && options_.replicas.empty();
    if (free) use(OneWorker());
    const std::vector<int> numbers = quick ? NumbersOfWorkers() : std::vector<int>{workers_};
    for (const int n : numbers) {
      if (free) use(Whole(0, n));
    }
    if (free && !quick && rule_.several_levels()) use(Whole(0, rule_.levels[0].workers));
    Say("comparing with other plans");
    // Returns what the plans that are found need of a worker's memory; 0 without any.
    const auto find = [&](SearchOptions search, const std::vector<double>& slower) {
      int64_t need = 0;
      if (IsSettled(best, fastest_ms)) return need;
      search.rule.bytes_per_ms /= slower[0];
      for (size_t l = 0; l < slower.size(); ++l) search.rule.levels[l].bytes_per_ms /= slower[l];
      const double slowest = std::max(1.0, *std::max_element(slower.begin(), slower.end()));
      search.most_ms = slowest * fastest_ms * (1 + kNothing);
      const auto take = [&](const std::vector<StageChoice>& stages) {
        need = std::max(need, Need(stages));
        use(stages);
      };
      if (AreWorkersAlike(search) && quick) {
        for (const auto& stages : FindPlansByWorkers(graph_, search)) take(stages);
        return need;
      }
      for (const int n : numbers) {
        search.max_workers = n;
        if (auto found = FindBestPlan(graph_, search)) take(found->stages);
      }
      return need;
    };
    const auto all = [&](double slower) { return std::vector(rule_.levels.size(), slower); };
    if (straight_ && free && !quick && !options_.cluster.memory_bytes) {
      use(straight_->stages);
    } else if (options_.replicas.empty()) {
      find(Search(/*replicate=*/false, /*one_in_flight=*/false), all(1));
    }
    SearchOptions full = Search(/*replicate=*/true, /*one_in_flight=*/false);
    // As many steps as for the best plan of so few workers: it must be found again.
    if (quick) find(full, all(1));
    full.max_steps = kRivalSteps;
    if (!quick || best.ideals > kFewIdeals) {
      if (int64_t{best.ideals} * workers_ <= kLong) find(full, all(1.5));
      if (quick) find(full, all(2));
      if (quick) find(full, all(3));
      return;
    }
    // Each, and all the best plans for less memory, down to what is too slow, so that they are
    // known whatever the limit.
    struct Descent {
      std::vector<double> slower;
      std::optional<int64_t> memory_bytes;
      bool ends = false;
    };
    std::vector<Descent> descents;
    for (auto& slower : SlowerLinks()) {
      descents.push_back({std::move(slower), options_.cluster.memory_bytes});
    }
    const int64_t steps = kLessMemory / (int64_t{best.ideals} * best.ideals * workers_ * workers_);
    for (int64_t step = 0; step <= steps; ++step) {
      bool ends = true;
      for (Descent& descent : descents) {
        if (descent.ends) continue;
        full.memory_bytes = descent.memory_bytes;
        const int64_t need = find(full, descent.slower);
        descent.memory_bytes = need - 1;
        descent.ends = need == 0;
        ends = ends && descent.ends;
      }
      if (ends) return;
    }
  }

  // Of a worker's memory.
  int64_t Need(const std::vector<StageChoice>& stages) const {
    const std::vector<int> depths = Judge::DefaultDepths(stages);
    int64_t need = 0;
    for (size_t s = 0; s < stages.size(); ++s) {
      need = std::max(need, judge_.Memory(stages[s]).Bytes(depths[s]));
    }
    return need;
  }

  // Where every rival is looked for.
  bool IsQuick(const SearchResult& best) const {
    constexpr int64_t kQuick = 4'000;
    return int64_t{best.ideals} * workers_ <= kQuick;
  }

  // Whether no plan is faster, nor as fast on fewer workers, by anything that counts.
  bool IsSettled(const SearchResult& best, double fastest_ms) const {
    const double near_ms = fastest_ms / (1 + kNothing);
    if (near_ms > best.lower_bound_ms) return false;
    double speed = -rule_.SlowestSpeed(0, workers_);  // Of all workers but one.
    for (int w = 0; w < workers_; ++w) speed += rule_.SlowestSpeed(w, 1);
    return speed <= 0 || fastest_ms * (1 + kNothing) < WorkMs() / speed;
  }

  double WorkMs() const {
    double ps = 0;
    for (const CostGraph::Layer& layer : graph_.layers) {
      ps += static_cast<double>(layer.forward_ps + layer.backward_ps + layer.update_ps);
    }
    return ps / kPsPerMs;
  }

  // How many times slower the links of each level become: not at all, 1.5, 2 and 3 times; besides,
  // all together or one alone, rounded up to a grid of rates that depends on the profile alone, and
  // a few of its steps below. Clusters whose links differ a little thus share their rivals.
  std::vector<std::vector<double>> SlowerLinks() const {
    constexpr int kSteps = 4;
    constexpr double kAmple = 1 << 10;
    double bytes = 1;
    for (const CostGraph::Layer& layer : graph_.layers) {
      bytes += static_cast<double>(layer.activation_bytes + layer.parameter_bytes);
    }
    const double unit = bytes / WorkMs();
    std::vector<std::vector<double>> links;
    for (const double slower : {1.0, 1.5, 2.0, 3.0}) {
      links.emplace_back(rule_.levels.size(), slower);
    }
    std::vector<double> nearest;
    for (const CostRule::Level& level : rule_.levels) {
      const double steps = std::log2(std::min(level.bytes_per_ms / unit, kAmple));
      nearest.push_back(level.bytes_per_ms / unit / std::exp2(std::ceil(steps)));
    }
    links.push_back(nearest);
    for (int step = 1; step < kSteps; ++step) {
      links.push_back(nearest);
      for (double& slower : links.back()) slower *= std::exp2(step);
      for (size_t l = 0; l < nearest.size() && rule_.several_levels(); ++l) {
        links.push_back(nearest);
        links.back()[l] *= std::exp2(step);
      }
    }
    return links;
  }

  // On which rivals are looked for, ascending: every number of alike workers; else whole machines,
  // and in one machine workers, of many halves.
  std::vector<int> NumbersOfWorkers() const {
    if (!options_.replicas.empty()) return {workers_};
    constexpr int kFew = 8;
    const bool alike = AreWorkersAlike(Search(/*replicate=*/true, /*one_in_flight=*/false));
    std::vector<int> numbers;
    int unit = 1, most = workers_;
    for (const CostRule::Level& level : rule_.levels) unit *= level.workers;
    for (size_t level = rule_.levels.size(); level-- > 0; most = unit - 1) {
      unit /= rule_.levels[level].workers;
      for (int u = most / unit; u >= 1; u = alike || u <= kFew ? u - 1 : (u + 1) / 2) {
        numbers.push_back(u * unit);
      }
    }
    std::reverse(numbers.begin(), numbers.end());
    return numbers;
  }

  static constexpr double kRounding = 1e-9 /* ms */, kNothing = kSamePeriod;
  static constexpr int64_t kRivalSteps = 250'000;

  // Of `first` and its rivals, those that are slower than the fastest by nothing that counts; of
  // these the one on the fewest workers, then the fastest, then the first.
  Judge::Verdict FastestOf(Judge::Verdict first, const SearchResult& found,
                           PartitionResult& result) {
    double fastest_ms = first.prediction.minibatch_ms;
    std::vector<std::vector<StageChoice>> known = {Judge::Plain(first.stages)};
    std::vector<Judge::Verdict> near = {std::move(first)};
    const auto is_near = [&](double ms) { return ms <= fastest_ms * (1 + kNothing); };
    ForEachRival(found, fastest_ms, [&](const std::vector<StageChoice>& stages) {
      const std::vector<StageChoice> rival = Judge::Plain(stages);
      if (std::find(known.begin(), known.end(), rival) != known.end()) return;
      known.push_back(rival);
      if (!is_near(judge_.BoundMs(rival))) return;
      Judge::Verdict verdict = judge_.Of(rival, 0, false);
      if (!verdict.prediction.fits || !is_near(verdict.prediction.minibatch_ms)) return;
      fastest_ms = std::min(fastest_ms, verdict.prediction.minibatch_ms);
      near.push_back(std::move(verdict));
    });
    result.rivals = static_cast<int>(known.size()) - 1;
    result.few_rivals = !IsQuick(found) && !IsSettled(found, fastest_ms);
    const auto rank = [&](const Judge::Verdict& verdict) {
      const double ms = verdict.prediction.minibatch_ms;
      return std::tuple(!is_near(ms), Judge::Workers(verdict.stages), std::floor(ms / kRounding));
    };
    return *std::min_element(near.begin(), near.end(),
                             [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  }

  // Rows beside the plan, whatever their memory and the user's cuts.
  void PredictBaselines(PartitionResult& result) {
    Say("predicting what to compare with");
    const auto predict = [&](const std::vector<StageChoice>& stages, bool one_in_flight) {
      const double bottleneck = rule_.model == CostModel::kArxiv ? BottleneckMs(stages) : 0;
      return judge_.Of(stages, bottleneck, one_in_flight).prediction;
    };
    result.data_parallel = predict(Whole(0, workers_), false);
    result.one_worker = predict(OneWorker(), false);
    SearchOptions search = Search(/*replicate=*/false, /*one_in_flight=*/true);
    search.memory_bytes.reset();
    search.cut_after.clear();
    search.replicas.clear();
    straight_ = FindBestPlan(graph_, search);
    PD_CHECK(straight_.has_value(), "no straight plan");
    result.model_parallel = predict(straight_->stages, true);
    result.straight = judge_.Of(straight_->stages, straight_->bottleneck_ms, false).prediction;
  }

  // ---- No plan fits.

  // `stages` need the least memory of all plans, `least`: says which of them needs it, and for
  // which layer.
  [[noreturn]] void FailMemory(const std::vector<StageChoice>& stages, int64_t least,
                               bool one_in_flight) const {
    const PipelineShape shape = ShapeOf(stages, {});
    size_t s = 0;
    const auto depth = [&](size_t at) {
      return one_in_flight ? 1 : DefaultInFlight(shape, static_cast<int>(at));
    };
    while (s + 1 < stages.size() && judge_.Memory(stages[s]).Bytes(depth(s)) < least) ++s;
    int tightest = stages[s].layers[0];
    int64_t share = -1;
    for (const int l : stages[s].layers) {
      const CostGraph::Layer& layer = graph_.layers[l];
      const int64_t kept = stages[s].recompute ? 1 : depth(s);
      const int64_t own = (depth(s) + 2) * layer.parameter_bytes + kept * layer.stash_bytes;
      if (own > share) {
        share = own;
        tightest = l;
      }
    }
    const auto bytes = [](int64_t count) { return FormatBytes(static_cast<double>(count)); };
    Throw(ErrorCode::kInvalidInput,
          "no plan fits {} a worker: the tightest layer is \"{}\", {} of the {} that its stage of "
          "{} needs with {} in flight; the nearest limit that works: --memory {}",
          bytes(*options_.cluster.memory_bytes), profile_.layers[tightest].name, bytes(share),
          bytes(least), Counted(static_cast<int64_t>(stages[s].layers.size()), "layer"),
          Counted(depth(s), "minibatch", "minibatches"), SizeAbove(least));
  }

  // ---- The plan.

  void Describe(const Judge::Verdict& best, PartitionResult& result) const {
    result.predicted = best.prediction;
    result.shape = ShapeOf(best.stages, best.depths);
    result.pipeline = judge_.Pipeline(best.stages);
    result.idle_workers = workers_ - Judge::Workers(best.stages);
    Plan& plan = result.plan;
    plan.model = profile_.model;
    plan.batch_size = profile_.batch_size;
    plan.schedule = options_.schedule;
    plan.layers = profile_.layers;
    plan.cluster = options_.cluster;
    plan.device = profile_.device;
    plan.command = options_.command;
    const auto workers = static_cast<size_t>(workers_);
    Predicted predicted;
    predicted.minibatch_ms = result.predicted.minibatch_ms;
    predicted.samples_per_s = result.predicted.samples_per_s;
    predicted.data_parallel_samples_per_s = result.data_parallel.samples_per_s;
    predicted.memory_bytes.assign(workers, 0);
    predicted.compute_ms.assign(workers, 0);
    predicted.idle_share.assign(workers, 1);
    predicted.bytes_sent.assign(workers, 0);
    predicted.bytes_received.assign(workers, 0);
    for (size_t s = 0; s < best.stages.size(); ++s) AddStage(best, s, predicted, result);
    plan.predicted = std::move(predicted);
  }

  void AddStage(const Judge::Verdict& best, size_t s, Predicted& predicted,
                PartitionResult& result) const {
    const StageChoice& choice = best.stages[s];
    const StageSums sums = judge_.Sums(choice);
    const StageLoad load = LoadsOf(result.shape, result.pipeline)[s];
    StageReport report;
    report.layers = choice.layers;
    const double m = choice.replicas;
    report.compute_ms =
        result.pipeline.stages[s].compute_ms() / result.pipeline.SlowestSpeed(result.shape, s);
    report.out_bytes = sums.out_bytes;
    report.all_reduce_bytes = 2 * (m - 1) / m * static_cast<double>(sums.parameter_bytes);
    report.memory_bytes = judge_.Memory(choice).Bytes(best.depths[s]);
    report.in_flight = best.depths[s];
    report.recompute = choice.recompute;
    StagePlan stage;
    for (const int l : choice.layers) stage.layers.push_back(profile_.layers[l].name);
    stage.recompute = choice.recompute;
    if (best.depths[s] != DefaultInFlight(result.shape, static_cast<int>(s))) {
      stage.in_flight = best.depths[s];
    }
    for (int r = 0; r < choice.replicas; ++r) {
      const int worker = choice.worker(r);
      const auto at = static_cast<size_t>(worker);
      stage.workers.push_back(worker);
      predicted.memory_bytes[at] = report.memory_bytes;
      predicted.compute_ms[at] = load.compute_ms / result.pipeline.Speed(worker);
      predicted.idle_share[at] =
          std::max(0.0, 1 - predicted.compute_ms[at] / predicted.minibatch_ms);
      predicted.bytes_sent[at] = std::llround(load.bytes_sent);
      predicted.bytes_received[at] = std::llround(load.bytes_received);
    }
    report.workers = stage.workers;
    result.stages.push_back(std::move(report));
    result.plan.stages.push_back(std::move(stage));
  }

  const Profile& profile_;
  const PartitionOptions& options_;
  CostGraph graph_;
  int workers_;
  CostRule rule_;
  std::vector<int> cut_after_;
  Judge judge_;
  // Of all searches together. The first, for the best plan, may take its full share.
  static constexpr int64_t kMostStepsInAll = 8'000'000;
  mutable int64_t steps_left_ = kMostStepsInAll;
  std::optional<SearchResult> straight_;  // The best one, whatever memory, cuts and replicas.
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
