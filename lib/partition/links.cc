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
      stage_of_(static_cast<size_t>(graph.size()), -1),
      readers_left_(static_cast<size_t>(graph.size()), 0) {
  int unit = 1;
  for (const CostRule::Level& level : rule.levels) {
    units_.push_back(unit);
    unit *= level.workers;
  }
  if (units_.empty()) units_.push_back(1);
}

void LinkLoads::Push(Stage stage) {
  const int at = static_cast<int>(stages_.size());
  const std::shared_ptr<const Tensors> tensors = stage.tensors;
  flow_from_.resize(stages_.size() + 1, -1);
  stages_.push_back({std::move(stage), flows_.size(), {}, 0, 0});
  for (const Tensors::Input& input : tensors->inputs) {
    const CostGraph::Layer& layer = graph_.layers[input.producer];
    const int from = stage_of_[input.producer];
    if (flow_from_[from] < 0) {
      flow_from_[from] = static_cast<int>(flows_.size());
      stages_[from].sends.push_back(flow_from_[from]);
      flows_.push_back({from, at});
    }
    Flow& flow = flows_[flow_from_[from]];
    flow.tensors += layer.activation_bytes;
    flow.gradients += input.gradients * layer.activation_bytes;
    readers_left_[input.producer] -= input.readers;
    if (readers_left_[input.producer] > 0) continue;
    flow.last_tensors += layer.activation_bytes;
    if (layer.needs_gradient) flow.last_gradients += layer.activation_bytes;
  }
  for (size_t f = stages_[at].flows; f < flows_.size(); ++f) {
    flow_from_[flows_[f].from] = -1;
    stages_[flows_[f].from].open_tensors -= flows_[f].last_tensors;
    stages_[flows_[f].from].open_gradients -= flows_[f].last_gradients;
  }
  for (const Tensors::Output& output : tensors->outputs) {
    stage_of_[output.producer] = at;
    readers_left_[output.producer] = output.readers;
  }
  stages_[at].open_tensors = tensors->sums.out_bytes;
  stages_[at].open_gradients = tensors->sums.out_gradient_bytes;
}

void LinkLoads::Pop() {
  const Entry& last = stages_.back();
  for (size_t f = last.flows; f < flows_.size(); ++f) {
    Entry& from = stages_[flows_[f].from];
    from.sends.pop_back();
    from.open_tensors += flows_[f].last_tensors;
    from.open_gradients += flows_[f].last_gradients;
  }
  flows_.resize(last.flows);
  for (const Tensors::Input& input : last.stage.tensors->inputs) {
    readers_left_[input.producer] += input.readers;
  }
  stages_.pop_back();
}

// The share of minibatches that both stages run on the workers [begin, end): replicas i and j meet
// in one of lcm minibatches where i ≡ j mod gcd, else never. The replicas of a stage that stand
// there are whole rounds of residues and some more, an arc; the arcs may overlap at both ends.
double LinkLoads::Together(const Stage& a, const Stage& b, int begin, int end) const {
  const int64_t gcd = std::gcd(a.replicas, b.replicas);
  const int64_t ours = Inside(a, begin, end), theirs = Inside(b, begin, end);
  const int64_t arc = ours % gcd, other = theirs % gcd;
  const int64_t from = std::max(begin - a.first_worker, 0) - std::max(begin - b.first_worker, 0);
  const int64_t ahead = (gcd - from % gcd) % gcd;  // How far the other arc begins behind ours.
  const int64_t overlap = std::max<int64_t>(0, std::min(arc, ahead + other) - ahead) +
                          std::max<int64_t>(0, std::min(arc, ahead + other - gcd));
  const int64_t rounds = ours / gcd, their_rounds = theirs / gcd;
  const int64_t meetings =
      gcd * rounds * their_rounds + rounds * other + their_rounds * arc + overlap;
  return static_cast<double>(meetings) /
         static_cast<double>(std::lcm<int64_t>(a.replicas, b.replicas));
}

double LinkLoads::Bytes(int level, int index, int next_worker) const {
  const int begin = index * units_[level];
  const int end = std::min(workers_, begin + units_[level]);
  double out = 0, in = 0;
  // How much of what passes between two stages leaves the unit.
  const auto crossing = [&](const Stage& stage, double share, const Stage& other) {
    return Inside(other, begin, end) > 0 ? share - Together(stage, other, begin, end) : share;
  };
  for (size_t s = stages_.size(); s-- > 0;) {
    const Stage& stage = stages_[s].stage;
    if (stage.first_worker + stage.replicas <= begin) break;
    const int here = Inside(stage, begin, end);
    if (here == 0) continue;
    const double m = stage.replicas, share = here / m;
    const double weights = rule_.AllReduceBytes(stage.tensors->sums, stage.first_worker,
                                                stage.replicas, index, units_[level]);
    out += weights / m;
    in += weights / m;
    const size_t behind = s + 1 < stages_.size() ? stages_[s + 1].flows : flows_.size();
    for (size_t f = stages_[s].flows; f < behind; ++f) {
      const double passing = crossing(stage, share, stages_[flows_[f].from].stage);
      in += passing * static_cast<double>(flows_[f].tensors);
      out += passing * static_cast<double>(flows_[f].gradients);
    }
    for (const int f : stages_[s].sends) {
      if (flows_[f].last_tensors == 0) continue;
      const double passing = crossing(stage, share, stages_[flows_[f].to].stage);
      out += passing * static_cast<double>(flows_[f].last_tensors);
      in += passing * static_cast<double>(flows_[f].last_gradients);
    }
    if (end > next_worker) continue;  // What is still to be read may all stay here.
    out += share * static_cast<double>(stages_[s].open_tensors);
    in += share * static_cast<double>(stages_[s].open_gradients);
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
      const Stage& stage = stages_[s].stage;
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
    load->sums = sums;
    std::vector<bool> inside(before.size(), false), received(before.size(), false);
    for (const int l : stage.layers) inside[l] = true;
    const auto is_inside = [&](int l) { return inside[l]; };
    for (const int l : stage.layers) {
      const CostGraph::Layer& layer = graph.layers[l];
      for (const int producer : layer.producers) {
        if (inside[producer] || received[producer]) continue;
        received[producer] = true;
        load->inputs.push_back(InputOf(graph, producer, is_inside));
      }
      const LinkLoads::Tensors::Output output = OutputOf(graph, l, is_inside);
      if (output.readers > 0) load->outputs.push_back(output);
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
