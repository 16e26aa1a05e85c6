#include "partition/exhaustive.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
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
      trained_(layers.size(), false),
      stages_(size_t{1} << layers.size()) {
  std::map<std::string, int> index;
  for (int l = 0; l < count_; ++l) {
    trained_[l] = layers[l].parameter_bytes > 0;
    for (const std::string& input : layers[l].inputs) {
      if (index.count(input) == 0) continue;
      trained_[l] = trained_[l] || trained_[index[input]];
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
                          std::max(StagePs(plan_.back()), BorderPs(done | mask)) > best_->ps;
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
    // Its own gradient, and those of all before it that it or a later layer reads.
    int64_t scratch = layer.activation_bytes + layer.workspace_bytes.value_or(0);
    for (int before = 0; before < l; ++before) {
      if ((readers_[before] >> l) == 0) continue;
      scratch += std::max(layers_[before].activation_bytes, layers_[before].copy_bytes.value_or(0));
    }
    stage->largest = std::max(stage->largest, scratch);
    stage->heaviest = std::max(stage->heaviest, layer.parameter_bytes);
    received |= reads_[l] & ~mask;
    if ((readers_[l] & ~mask) == 0) continue;
    stage->out += static_cast<double>(layer.activation_bytes);
    // A message is its tensor's place, unless the device has an order of its own.
    const int64_t copy = layer.copy_bytes.value_or(0),
                  stash = layer.stash_bytes.value_or(layer.activation_bytes);
    if (copy == 0 && stash >= layer.activation_bytes) stage->sent_stash -= layer.activation_bytes;
    if (copy > 0 && stash < std::max(copy, layer.activation_bytes)) stage->sent_stash += copy;
    if (trained_[l]) stage->receives += static_cast<double>(layer.activation_bytes);
  }
  stage->sends += stage->out;
  for (int l = 0; l < count_; ++l) {
    if (!Has(received, l)) continue;
    stage->in += static_cast<double>(layers_[l].activation_bytes);
    stage->copies += static_cast<double>(layers_[l].copy_bytes.value_or(0));
    if (trained_[l]) {
      stage->sends += Messages(l, mask) * static_cast<double>(layers_[l].activation_bytes);
    }
  }
  stage->receives += stage->in;
  return *stage;
}

// Gradients are summed from the last reader on, as far as readers stand in the mask.
int Exhaustive::Messages(int layer, unsigned mask) const {
  int last_elsewhere = -1;
  for (int l = 0; l < count_; ++l) {
    if (Has(readers_[layer], l) && !Has(mask, l)) last_elsewhere = l;
  }
  int before = 0, behind = 0;
  for (int l = 0; l < count_; ++l) {
    if (Has(readers_[layer] & mask, l)) ++(l < last_elsewhere ? before : behind);
  }
  return before + std::min(behind, 1);
}

double Exhaustive::Slowest(const Placed& placed) const {
  if (options_.rule.speeds.empty()) return 1;
  double slowest = 1e300;
  for (int w = placed.first; w < placed.first + placed.replicas; ++w) {
    slowest = std::min(slowest, options_.rule.speeds[w]);
  }
  return slowest;
}

int64_t Exhaustive::StagePs(const Placed& placed) {
  return std::max({ComputePs(placed), WorkerLinkPs(placed), AllReducePs(placed)});
}

int64_t Exhaustive::ComputePs(const Placed& placed) {
  const Stage& stage = Of(placed.layers);
  const double forward = placed.recompute ? 2 * stage.forward : stage.forward;
  const double update = arxiv_ ? 0 : stage.update;
  return ToPs((forward + stage.backward + update) / Slowest(placed) / placed.replicas);
}

int64_t Exhaustive::WorkerLinkPs(const Placed& placed) {
  const Stage& stage = Of(placed.layers);
  const double m = placed.replicas, rate = options_.rule.bytes_per_ms;
  if (arxiv_) return ToPs(4 * (m - 1) * stage.weights / (m * rate) / m);
  const double tensors = std::max(stage.sends, stage.receives);
  return ToPs((tensors + 2 * (m - 1) / m * stage.weights) / rate / m);
}

// Each pair of replicas sends each other a part and a result. But where they stand evenly on
// several machines, the replica at an owner's place on each machine gathers its machine's parts,
// sends one sum to the owner, gets the result and passes it on.
Exhaustive::Traffic Exhaustive::AllReduce(const Placed& placed) const {
  std::map<int, std::vector<int>> machines;
  for (int a = placed.first; a < placed.first + placed.replicas; ++a) {
    const auto& levels = options_.rule.levels;
    machines[levels.empty() ? 0 : a / levels[0].workers].push_back(a);
  }
  std::set<size_t> sizes;
  for (const auto& [which, workers] : machines) sizes.insert(workers.size());
  Traffic traffic;
  traffic.inside_first = machines.size() > 1 && sizes.size() == 1 && *sizes.begin() > 1;
  std::vector<Sent>& all = traffic.sent;
  for (const auto& [which, workers] : machines) {
    for (size_t place = 0; place < workers.size(); ++place) {
      const int owner = workers[place];
      for (const auto& [other, theirs] : machines) {
        if (!traffic.inside_first) {
          for (const int peer : theirs) {
            if (peer != owner) all.insert(all.end(), {{peer, owner}, {owner, peer}});
          }
          continue;
        }
        const int at_place = theirs[place];
        if (at_place != owner) all.insert(all.end(), {{at_place, owner}, {owner, at_place}});
        for (const int peer : theirs) {
          if (peer != at_place) all.insert(all.end(), {{peer, at_place}, {at_place, peer}});
        }
      }
    }
  }
  return traffic;
}

int64_t Exhaustive::AllReducePs(const Placed& placed) {
  const Stage& stage = Of(placed.layers);
  const int m = placed.replicas;
  if (arxiv_ || m == 1 || stage.weights == 0) return 0;
  std::vector<CostRule::Level> levels = options_.rule.levels;
  if (levels.empty()) levels = {{workers_, options_.rule.bytes_per_ms, 0}};
  const Traffic traffic = AllReduce(placed);
  double slowest = 0, latency = 0;
  int unit = 1;
  for (const CostRule::Level& level : levels) {
    std::map<int, int> parts;  // that leave a unit
    for (const Sent& part : traffic.sent) {
      if (part.from / unit != part.to / unit) ++parts[part.from / unit];
    }
    for (const auto& [which, count] : parts) {
      latency = level.latency_ms;
      slowest = std::max(slowest, count * stage.weights / m / level.bytes_per_ms);
    }
    unit *= level.workers;
  }
  if (traffic.inside_first) latency += levels[0].latency_ms;
  // Buckets from the last layer on, as the backward pass fills them.
  struct Bucket {
    double ready = 0, weights = 0;
    int front = -1;  // its first layer with weights
  };
  std::vector<Bucket> buckets;
  double time = placed.recompute ? stage.forward : 0;
  for (int l = count_; l-- > 0;) {
    if (!Has(placed.layers, l)) continue;
    time += layers_[l].backward_ms;
    if (layers_[l].parameter_bytes == 0 && layers_[l].update_ms.value_or(0) == 0) continue;
    if (buckets.empty() || buckets.back().weights >= 256 * 1024) buckets.emplace_back();
    buckets.back().weights += static_cast<double>(layers_[l].parameter_bytes);
    buckets.back().ready = time;
    buckets.back().front = l;
  }
  const LayerCost& front = layers_[static_cast<size_t>(buckets.back().front)];
  const bool single = buckets.size() == 1;
  const double update = single ? stage.update : front.update_ms.value_or(0);
  const double least = single ? 1 : static_cast<double>(front.parameter_bytes) / stage.weights;
  const auto round = [&](double ready, double share, int latencies) {
    return (stage.forward + ready + update) / Slowest(placed) + share * slowest +
           latencies * latency;
  };
  return ToPs(std::max(round(buckets[0].ready, 1, 1), round(buckets.back().ready, least, 2)) / m);
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
    std::map<int, double> sent, received;  // By a unit in one cycle.
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
            received[unit_of(reader)] += size;
            if (trained_[l]) sent[unit_of(reader)] += Messages(l, reader.layers) * size;
          }
          if (leaves) sent[unit_of(producer)] += size;
          if (leaves && trained_[l]) received[unit_of(producer)] += size;
        }
      }
    }
    for (const Placed& stage : plan_) {
      const double m = stage.replicas;
      for (const Sent& part : AllReduce(stage).sent) {
        if (part.from / unit == part.to / unit) continue;
        const double bytes = static_cast<double>(cycle) / m / m * Of(stage.layers).weights;
        sent[part.from / unit] += bytes;
        received[part.to / unit] += bytes;
      }
    }
    for (const auto& direction : {sent, received}) {
      for (const auto& [which, bytes] : direction) {
        const double rate = options_.rule.levels[level].bytes_per_ms;
        largest = std::max(largest, ToPs(bytes / static_cast<double>(cycle) / rate));
      }
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
  const auto copies = static_cast<int64_t>(stage.copies);
  const auto gradients = static_cast<int64_t>(stage.sends - stage.out + stage.receives - stage.in);
  return depth * (weights + received + sent) + arenas * (stage.stash + stage.sent_stash + copies) +
         weights /* gradients */ + weights /* momentum */ + parts + 2 * received /* ahead */ +
         2 * gradients /* received and sent */ + stage.largest;
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
    candidate.ps = std::max({candidate.ps, StagePs(stage), BorderPs(done)});
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
