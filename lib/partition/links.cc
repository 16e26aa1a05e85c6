#include "partition/links.h"

#include <algorithm>
#include <numeric>

namespace pd {
namespace {

// How many of the workers [begin, end) a stage holds.
int Inside(const LinkLoads::Stage& stage, int begin, int end) {
  return std::max(
      0, std::min(end, stage.first_worker + stage.replicas) - std::max(begin, stage.first_worker));
}

}  // namespace

LinkLoads::LinkLoads(const CostGraph& graph, const CostRule& rule, int workers)
    : graph_(graph),
      rule_(rule),
      workers_(workers),
      stage_of_(static_cast<size_t>(graph.size()), -1) {
  int unit = 1;
  for (const CostRule::Level& level : rule.levels) {
    units_.push_back(unit);
    unit *= level.workers;
  }
  if (units_.empty()) units_.push_back(1);
}

void LinkLoads::Push(Stage stage) {
  for (const int l : stage.tensors->layers) stage_of_[l] = static_cast<int>(stages_.size());
  stages_.push_back(std::move(stage));
}

void LinkLoads::Pop() {
  for (const int l : stages_.back().tensors->layers) stage_of_[l] = -1;
  stages_.pop_back();
}

// The share of minibatches that both stages run on the workers [begin, end): replicas i and j meet
// in one of lcm minibatches where i ≡ j mod gcd, else never.
double LinkLoads::Together(const Stage& a, const Stage& b, int begin, int end) const {
  const int gcd = std::gcd(a.replicas, b.replicas);
  if (gcd == 1) {
    return static_cast<double>(int64_t{Inside(a, begin, end)} * Inside(b, begin, end)) /
           static_cast<double>(int64_t{a.replicas} * b.replicas);
  }
  const auto count = [&](const Stage& stage) {
    std::vector<int64_t> residues(static_cast<size_t>(gcd), 0);
    const int from = std::max(begin, stage.first_worker);
    const int to = std::min(end, stage.first_worker + stage.replicas);
    for (int w = from; w < to; ++w) ++residues[(w - stage.first_worker) % gcd];
    return residues;
  };
  const std::vector<int64_t> ours = count(a), theirs = count(b);
  int64_t meetings = 0;
  for (int r = 0; r < gcd; ++r) meetings += ours[r] * theirs[r];
  return static_cast<double>(meetings) /
         static_cast<double>(std::lcm<int64_t>(a.replicas, b.replicas));
}

double LinkLoads::Bytes(int level, int index, int next_worker) const {
  const int begin = index * units_[level];
  const int end = std::min(workers_, begin + units_[level]);
  double out = 0, in = 0;
  for (const Stage& stage : stages_) {
    const int here = Inside(stage, begin, end);
    if (here == 0) continue;
    const double m = stage.replicas, share = here / m;
    const double weights = rule_.AllReduceBytes(stage.tensors->sums, stage.first_worker,
                                                stage.replicas, index, units_[level]);
    out += weights / m;
    in += weights / m;
    for (const auto& [l, gradients] : stage.tensors->inputs) {
      const Stage& producer = stages_[stage_of_[l]];
      double crossing = share;
      if (Inside(producer, begin, end) > 0) crossing -= Together(producer, stage, begin, end);
      crossing *= static_cast<double>(graph_.layers[l].activation_bytes);
      in += crossing;
      out += crossing * gradients;
    }
    for (const int l : stage.tensors->outputs) {
      int reader = 0;
      bool pending = false;
      for (const int consumer : graph_.layers[l].consumers) {
        pending = pending || stage_of_[consumer] < 0;
        reader = std::max(reader, stage_of_[consumer]);
      }
      double crossing = share;
      if (pending) {
        if (end > next_worker) crossing = 0;  // It may all stay here.
      } else if (Inside(stages_[reader], begin, end) > 0) {
        crossing -= Together(stage, stages_[reader], begin, end);
      }
      crossing *= static_cast<double>(graph_.layers[l].activation_bytes);
      out += crossing;
      if (graph_.layers[l].needs_gradient) in += crossing;
    }
  }
  return std::max(out, in);
}

double LinkLoads::Ps(int level, int index, int next_worker) const {
  const double rate = rule_.levels.empty() ? rule_.bytes_per_ms : rule_.levels[level].bytes_per_ms;
  return RoundPs(kPsPerMs * Bytes(level, index, next_worker) / rate);
}

double LinkLoads::LargestPs(int next_worker) const {
  double largest = 0;
  const size_t from = stages_.size() < 2 ? 0 : stages_.size() - 2;
  for (int level = 1; level < levels(); ++level) {
    int done = -1;
    for (size_t s = from; s < stages_.size(); ++s) {
      const Stage& stage = stages_[s];
      const int first = s + 1 < stages_.size()
                            ? (stage.first_worker + stage.replicas - 1) / units_[level]
                            : stage.first_worker / units_[level];
      const int last = (stage.first_worker + stage.replicas - 1) / units_[level];
      for (int index = std::max(first, done + 1); index <= last; ++index) {
        largest = std::max(largest, Ps(level, index, next_worker));
        done = index;
      }
    }
  }
  return largest;
}

std::vector<ResourceCost> ResourceCosts(const CostGraph& graph,
                                        const std::vector<StageChoice>& stages,
                                        const CostRule& rule) {
  std::vector<ResourceCost> costs;
  const auto add = [&](ResourceCost::Kind kind, size_t stage, int level, int unit, double ps) {
    costs.push_back({kind, static_cast<int>(stage), level, unit, ps / kPsPerMs});
  };
  const int workers = stages.back().first_worker + stages.back().replicas;
  LinkLoads loads(graph, rule, workers);
  std::vector<bool> before(static_cast<size_t>(graph.size()), false);
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageChoice& stage = stages[s];
    const StageSums sums = SumsOf(graph, stage.layers, s == 0);
    const int first = stage.first_worker, m = stage.replicas;
    const auto load = std::make_shared<LinkLoads::Tensors>();
    load->layers = stage.layers;
    load->sums = sums;
    std::vector<bool> inside(before.size(), false), received(before.size(), false);
    for (const int l : stage.layers) inside[l] = true;
    for (const int l : stage.layers) {
      const CostGraph::Layer& layer = graph.layers[l];
      for (const int producer : layer.producers) {
        if (inside[producer] || received[producer]) continue;
        received[producer] = true;
        load->inputs.push_back(InputOf(graph, producer, [&](int c) { return inside[c]; }));
      }
      const bool sent = std::any_of(layer.consumers.begin(), layer.consumers.end(),
                                    [&](int consumer) { return !inside[consumer]; });
      if (sent) load->outputs.push_back(l);
      before[l] = true;
    }
    const double speed = rule.SlowestSpeed(first, m);
    add(ResourceCost::Kind::kCompute, s, 0, 0, rule.ComputePs(sums, m, speed, stage.recompute));
    add(ResourceCost::Kind::kLink, s, 0, 0, rule.LinkPs(sums, m));
    if (rule.model == CostModel::kRuntime) {
      add(ResourceCost::Kind::kAllReduce, s, 0, 0,
          rule.AllReducePs(sums, first, m, speed, stage.recompute));
    }
    if (rule.model == CostModel::kArxiv && s + 1 < stages.size()) {
      add(ResourceCost::Kind::kBorder, s, 0, 0, rule.BorderPs(CrossingBytes(graph, before)));
    }
    loads.Push({first, m, load});
  }
  if (rule.model == CostModel::kArxiv) return costs;
  for (int level = 1; level < loads.levels(); ++level) {
    int done = -1;
    for (size_t s = 0; s < stages.size(); ++s) {
      const int last = (stages[s].first_worker + stages[s].replicas - 1) / loads.unit(level);
      for (int unit = std::max(done + 1, stages[s].first_worker / loads.unit(level)); unit <= last;
           ++unit) {
        add(ResourceCost::Kind::kLink, s, level, unit, loads.Ps(level, unit, workers));
        done = unit;
      }
    }
  }
  return costs;
}

}  // namespace pd
