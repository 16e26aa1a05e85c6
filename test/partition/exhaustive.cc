#include "partition/exhaustive.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

namespace pd {
namespace {

int64_t ToPs(double ms) { return std::llround(ms * 1e9); }

bool Has(unsigned mask, int layer) { return (mask >> layer & 1) != 0; }

}  // namespace

Exhaustive::Exhaustive(const std::vector<LayerCost>& layers, const SearchOptions& options)
    : layers_(layers),
      options_(options),
      count_(static_cast<int>(layers.size())),
      workers_(options.max_workers),
      arxiv_(options.rule.model == CostModel::kArxiv),
      reads_(layers.size(), 0),
      readers_(layers.size(), 0),
      stages_(size_t{1} << layers.size()) {
  std::map<std::string, int> index;
  for (int l = 0; l < count_; ++l) {
    for (const std::string& input : layers[l].inputs) {
      if (index.count(input) == 0) continue;
      reads_[l] |= 1U << index[input];
      readers_[index[input]] |= 1U << l;
    }
    index[layers[l].name] = l;
  }
  places_ = !options.rule.speeds.empty() || options.rule.levels.size() > 1;
}

std::optional<Exhaustive::Candidate> Exhaustive::Best() {
  Extend(0, 0);
  return best_;
}

void Exhaustive::Extend(unsigned done, int next_worker) {
  const unsigned all = (1U << count_) - 1;
  if (done == all) return Consider();
  if (!options_.replicas.empty() && plan_.size() == options_.replicas.size()) return;
  const unsigned left = all & ~done;
  for (unsigned mask = left; mask != 0; mask = (mask - 1) & left) {
    bool closed = true;  // Whether all that the stage reads is there.
    for (int l = 0; l < count_; ++l) {
      closed = closed && (!Has(mask, l) || (reads_[l] & ~(done | mask)) == 0);
    }
    if (!closed || !Separates(mask)) continue;
    const int most = options_.replicate ? workers_ : 1;
    for (int m = 1; m <= most; ++m) {
      if (!options_.replicas.empty() && options_.replicas[plan_.size()] != m) continue;
      for (int first = next_worker; first + m <= workers_; ++first) {
        if (first > next_worker && !places_) break;
        plan_.push_back({mask, first, m, false});
        // What is slower already cannot become the best. Where memory counts, all are looked at.
        const bool slow = best_ && !options_.memory_bytes &&
                          std::max({ComputePs(plan_.back()), WorkerLinkPs(plan_.back()),
                                    BorderPs(done | mask)}) > best_->ps;
        if (!slow) Extend(done | mask, first + m);
        plan_.pop_back();
      }
    }
  }
}

bool Exhaustive::Separates(unsigned mask) const {
  for (const int l : options_.cut_after) {
    if (Has(mask, l) && (readers_[l] & mask) != 0) return false;
  }
  return true;
}

const Exhaustive::Stage& Exhaustive::Of(unsigned mask) {
  std::optional<Stage>& stage = stages_[mask];
  if (stage) return *stage;
  stage.emplace();
  unsigned received = 0;
  for (int l = 0; l < count_; ++l) {
    if (!Has(mask, l)) continue;
    const LayerCost& layer = layers_[l];
    stage->forward += layer.forward_ms;
    stage->backward += layer.backward_ms;
    stage->update += layer.update_ms.value_or(0);
    stage->weights += static_cast<double>(layer.parameter_bytes);
    stage->stash += layer.stash_bytes.value_or(layer.activation_bytes);
    stage->largest =
        std::max(stage->largest, 2 * layer.activation_bytes + layer.workspace_bytes.value_or(0));
    stage->heaviest = std::max(stage->heaviest, layer.parameter_bytes);
    received |= reads_[l] & ~mask;
    if ((readers_[l] & ~mask) != 0) stage->out += static_cast<double>(layer.activation_bytes);
  }
  for (int l = 0; l < count_; ++l) {
    if (Has(received, l)) stage->in += static_cast<double>(layers_[l].activation_bytes);
  }
  return *stage;
}

int64_t Exhaustive::ComputePs(const Placed& placed) {
  const Stage& stage = Of(placed.layers);
  double slowest = 1;
  if (!options_.rule.speeds.empty()) {
    slowest = 1e300;
    for (int w = placed.first; w < placed.first + placed.replicas; ++w) {
      slowest = std::min(slowest, options_.rule.speeds[w]);
    }
  }
  const double forward = placed.recompute ? 2 * stage.forward : stage.forward;
  const double update = arxiv_ ? 0 : stage.update;
  return ToPs((forward + stage.backward + update) / slowest / placed.replicas);
}

int64_t Exhaustive::WorkerLinkPs(const Placed& placed) {
  const Stage& stage = Of(placed.layers);
  const double m = placed.replicas, rate = options_.rule.bytes_per_ms;
  if (arxiv_) return ToPs(4 * (m - 1) * stage.weights / (m * rate) / m);
  double together = m;  // Replicas on one machine, where there are the most.
  if (options_.rule.levels.size() > 1) {
    std::map<int, int> machines;
    together = 0;
    for (int w = placed.first; w < placed.first + placed.replicas; ++w) {
      const int here = ++machines[w / options_.rule.levels[0].workers];
      together = std::max<double>(together, here);
    }
  }
  return ToPs((stage.in + stage.out + 2 * (together - 1) / together * stage.weights) / rate / m);
}

int64_t Exhaustive::BorderPs(unsigned done) {
  if (!arxiv_) return 0;
  double crossing = 0;
  for (int l = 0; l < count_; ++l) {
    if (Has(done, l) && (readers_[l] & ~done) != 0) {
      crossing += static_cast<double>(layers_[l].activation_bytes);
    }
  }
  return ToPs(2 * crossing / options_.rule.bytes_per_ms);
}

// Deals as many minibatches as it takes until all meet as at the start.
int64_t Exhaustive::MachineLinksPs() {
  int64_t cycle = 1, largest = 0;
  for (const Placed& stage : plan_) cycle = std::lcm<int64_t>(cycle, stage.replicas);
  int unit = 1;
  for (size_t level = 1; level < options_.rule.levels.size(); ++level) {
    unit *= options_.rule.levels[level - 1].workers;
    const int siblings = unit * options_.rule.levels[level].workers;
    std::map<int, double> bytes;  // Sent by a unit in one cycle; as many are received.
    for (int64_t b = 0; b < cycle; ++b) {
      const auto unit_of = [&](const Placed& stage) {
        return (stage.first + static_cast<int>(b % stage.replicas)) / unit;
      };
      for (const Placed& producer : plan_) {
        for (int l = 0; l < count_; ++l) {
          if (!Has(producer.layers, l)) continue;
          const auto size = static_cast<double>(layers_[l].activation_bytes);
          bool leaves = false;
          for (const Placed& reader : plan_) {
            if (&reader == &producer || (readers_[l] & reader.layers) == 0) continue;
            if (unit_of(reader) == unit_of(producer)) continue;
            leaves = true;
            bytes[unit_of(reader)] += size;  // The gradient, back.
          }
          if (leaves) bytes[unit_of(producer)] += size;
        }
      }
    }
    for (const Placed& stage : plan_) {
      std::map<int, std::map<int, int>> replicas;  // [parent][unit]
      for (int w = stage.first; w < stage.first + stage.replicas; ++w) {
        ++replicas[w / siblings][w / unit];
      }
      for (const auto& [parent, units] : replicas) {
        const auto c = static_cast<double>(units.size());
        for (const auto& [which, here] : units) {
          bytes[which] += static_cast<double>(cycle) / stage.replicas * 2 * (c - 1) / c *
                          Of(stage.layers).weights;
        }
      }
    }
    for (const auto& [which, sent] : bytes) {
      const double rate = options_.rule.levels[level].bytes_per_ms;
      largest = std::max(largest, ToPs(sent / static_cast<double>(cycle) / rate));
    }
  }
  return largest;
}

int64_t Exhaustive::Memory(const Placed& placed, int depth, bool recompute) {
  const Stage& stage = Of(placed.layers);
  const auto received = static_cast<int64_t>(stage.in), sent = static_cast<int64_t>(stage.out);
  const auto weights = static_cast<int64_t>(stage.weights);
  const int64_t bucket = std::min<int64_t>(weights, 256 * 1024 + stage.heaviest);
  const int64_t part = std::min<int64_t>(60 * 1024, bucket / placed.replicas);
  const int64_t parts = placed.replicas == 1 ? 0 : 32 * placed.replicas * part;
  const int arenas = recompute ? 1 : depth;
  return depth * (weights + received) + arenas * (stage.stash + sent) + weights /* gradients */ +
         weights /* momentum */ + parts + 2 * received /* ahead */ +
         2 * sent /* their gradients */ + 2 * received /* gradients sent */ + stage.largest;
}

void Exhaustive::Consider() {
  if (!options_.replicas.empty() && plan_.size() != options_.replicas.size()) return;
  std::vector<Placed>& stages = plan_;
  Candidate candidate;
  unsigned done = 0;
  int64_t need = 0;
  bool fits = true;
  for (size_t s = 0; s < stages.size(); ++s) {
    Placed& stage = stages[s];
    int behind = 0;
    for (size_t t = s; t < stages.size(); ++t) behind += stages[t].replicas;
    int depth = 0;  // ⌈behind / r⌉, counted.
    while (depth * stage.replicas < behind) ++depth;
    if (options_.one_in_flight) depth = 1;
    const int64_t plain = Memory(stage, depth, false);
    const int64_t less = options_.allow_recompute ? Memory(stage, depth, true) : plain;
    need = std::max(need, less);
    stage.recompute = options_.memory_bytes && plain > *options_.memory_bytes;
    fits = fits && (!options_.memory_bytes || less <= *options_.memory_bytes);
    done |= stage.layers;
    candidate.workers += stage.replicas;
    candidate.ps = std::max({candidate.ps, ComputePs(stage), WorkerLinkPs(stage), BorderPs(done)});
  }
  least_memory_ = std::min(least_memory_, need);
  if (!fits) return;
  if (!arxiv_) candidate.ps = std::max(candidate.ps, MachineLinksPs());
  if (best_ && candidate.ps > best_->ps) return;
  candidate.stages = stages;
  if (!best_ || Earlier(candidate, *best_)) best_ = candidate;
}

// The stated rule: bottleneck, workers, stages; then for each stage its border (fewer layers, then
// the list of layers), its replicas, its first worker.
bool Exhaustive::Earlier(const Candidate& a, const Candidate& b) {
  if (a.ps != b.ps) return a.ps < b.ps;
  if (a.workers != b.workers) return a.workers < b.workers;
  if (a.stages.size() != b.stages.size()) return a.stages.size() < b.stages.size();
  unsigned done_a = 0, done_b = 0;
  const auto list = [](unsigned mask) {
    std::vector<int> layers;
    for (int l = 0; l < 32; ++l) {
      if (Has(mask, l)) layers.push_back(l);
    }
    return layers;
  };
  for (size_t s = 0; s < a.stages.size(); ++s) {
    done_a |= a.stages[s].layers;
    done_b |= b.stages[s].layers;
    const std::vector<int> ours = list(done_a), theirs = list(done_b);
    if (ours.size() != theirs.size()) return ours.size() < theirs.size();
    if (ours != theirs) return ours < theirs;
    if (a.stages[s].replicas != b.stages[s].replicas) {
      return a.stages[s].replicas < b.stages[s].replicas;
    }
    if (a.stages[s].first != b.stages[s].first) return a.stages[s].first < b.stages[s].first;
  }
  return false;
}

}  // namespace pd
