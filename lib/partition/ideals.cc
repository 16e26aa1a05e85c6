#include "partition/ideals.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace pd {
namespace {

bool Get(const std::vector<uint64_t>& bits, int layer) {
  return (bits[static_cast<size_t>(layer) / 64] >> (layer % 64) & 1) != 0;
}
void Set(std::vector<uint64_t>& bits, int layer) {
  bits[static_cast<size_t>(layer) / 64] |= uint64_t{1} << (layer % 64);
}

// Of two different sets with as many layers: whose ascending list is smaller? The one that has the
// smallest layer in which they differ.
bool Earlier(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  for (size_t w = 0; w < a.size(); ++w) {
    const uint64_t differ = a[w] ^ b[w];
    if (differ != 0) return (a[w] & (differ & (~differ + 1))) != 0;
  }
  return false;
}

std::vector<int> LargestFirst(const CostGraph& graph, int64_t CostGraph::Layer::*bytes) {
  std::vector<int> order(static_cast<size_t>(graph.size()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return graph.layers[a].*bytes > graph.layers[b].*bytes; });
  return order;
}

}  // namespace

Ideals::Ideals(const CostGraph& graph, int most)
    : graph_(graph),
      readers_(graph.graph_input_bytes.size()),
      by_scratch_(LargestFirst(graph, &CostGraph::Layer::scratch_bytes)),
      by_parameters_(LargestFirst(graph, &CostGraph::Layer::parameter_bytes)) {
  for (int l = 0; l < graph.size(); ++l) {
    for (const int input : graph.layers[l].graph_inputs) readers_[input].push_back(l);
  }
  std::vector<Bits> found;
  all_ = FindAll(most, found);
  if (!all_) FindSome(most, found);
  for (const Bits& bits : found) ideals_.push_back(Describe(bits));
  std::sort(ideals_.begin(), ideals_.end(), [](const Ideal& a, const Ideal& b) {
    return a.layers != b.layers ? a.layers < b.layers : Earlier(a.bits, b.bits);
  });
}

bool Ideals::MayAdd(const Bits& bits, int layer) const {
  if (Get(bits, layer)) return false;
  const std::vector<int>& producers = graph_.layers[layer].producers;
  return std::all_of(producers.begin(), producers.end(), [&](int p) { return Get(bits, p); });
}

// Each ideal grows by layers of higher index than all that it has, and so is met once.
bool Ideals::FindAll(int most, std::vector<Bits>& found) const {
  struct Node {
    Bits bits;
    int next = 0;
  };
  if (graph_.size() + 1 > most) return false;
  std::vector<Node> open = {{Bits(static_cast<size_t>(graph_.size() + 63) / 64, 0), 0}};
  while (!open.empty()) {
    const Node node = std::move(open.back());
    open.pop_back();
    found.push_back(node.bits);
    if (static_cast<int>(found.size() + open.size()) > most) return false;
    for (int l = node.next; l < graph_.size(); ++l) {
      if (!MayAdd(node.bits, l)) continue;
      open.push_back({node.bits, l + 1});
      Set(open.back().bits, l);
    }
  }
  return true;
}

void Ideals::FindSome(int most, std::vector<Bits>& found) const {
  const int layers = graph_.size();
  const Bits none(static_cast<size_t>(layers + 63) / 64, 0);
  found.clear();
  if (layers + 1 > most) {
    // Runs of the order: the narrowest ideal of each, and all layers.
    std::vector<int64_t> crossing(static_cast<size_t>(layers));  // By the last layer.
    int64_t bytes = 0;
    for (int l = 0; l < layers; ++l) {
      const CostGraph::Layer& layer = graph_.layers[l];
      if (!layer.consumers.empty()) bytes += layer.activation_bytes;
      for (const int producer : layer.producers) {
        const CostGraph::Layer& read = graph_.layers[producer];
        if (read.consumers.back() == l) bytes -= read.activation_bytes;
      }
      crossing[l] = bytes;
    }
    found.push_back(none);
    const int64_t runs = most - 2;
    Bits bits = none;
    int next = 0;  // The first layer that is not in `bits`.
    const auto fill = [&](int end) {
      for (; next < end; ++next) Set(bits, next);
      found.push_back(bits);
    };
    for (int64_t r = 0; r < runs; ++r) {
      const auto begin = crossing.begin() + r * (layers - 1) / runs;
      const auto end = crossing.begin() + (r + 1) * (layers - 1) / runs;
      fill(static_cast<int>(std::min_element(begin, end) - crossing.begin()) + 1);
    }
    fill(layers);
    return;
  }
  const auto width = static_cast<size_t>(most / (layers + 1));
  Bits prefix = none;
  std::vector<Bits> row = {none};
  for (int count = 0;; ++count) {
    found.insert(found.end(), row.begin(), row.end());
    if (count == layers) return;
    std::set<Bits> next;
    for (const Bits& bits : row) {
      for (int l = 0; l < layers; ++l) {
        if (!MayAdd(bits, l)) continue;
        Bits grown = bits;
        Set(grown, l);
        next.insert(std::move(grown));
      }
    }
    Set(prefix, count);
    next.erase(prefix);
    std::vector<Ideal> ideals;
    for (const Bits& bits : next) ideals.push_back(Describe(bits));
    std::sort(ideals.begin(), ideals.end(), [](const Ideal& a, const Ideal& b) {
      if (a.crossing_bytes != b.crossing_bytes) return a.crossing_bytes < b.crossing_bytes;
      return Earlier(a.bits, b.bits);
    });
    if (ideals.size() >= width) ideals.resize(width - 1);
    row = {prefix};
    for (Ideal& ideal : ideals) row.push_back(std::move(ideal.bits));
  }
}

Ideals::Ideal Ideals::Describe(const Bits& bits) const {
  Ideal ideal;
  ideal.bits = bits;
  for (int l = 0; l < graph_.size(); ++l) {
    if (!Get(bits, l)) continue;
    const CostGraph::Layer& layer = graph_.layers[l];
    if (l == ideal.layers && ideal.shared == l) ++ideal.shared;
    ++ideal.layers;
    ideal.last = l;
    ideal.forward_ps += layer.forward_ps;
    ideal.backward_ps += layer.backward_ps;
    ideal.update_ps += layer.update_ps;
    ideal.parameter_bytes += layer.parameter_bytes;
    ideal.stash_bytes += layer.stash_bytes;
    const bool crosses = std::any_of(layer.consumers.begin(), layer.consumers.end(),
                                     [&](int consumer) { return !Get(bits, consumer); });
    if (!crosses) continue;
    ideal.boundary.push_back(l);
    ideal.crossing_bytes += layer.activation_bytes;
    ideal.crossing_stash_bytes += layer.sent_stash_bytes;
    if (layer.needs_gradient) ideal.crossing_gradient_bytes += layer.activation_bytes;
  }
  return ideal;
}

bool Ideals::Within(int i, int j) const {
  const Ideal &a = ideals_[i], &b = ideals_[j];
  if (a.layers >= b.layers) return false;
  if (a.last < b.shared) return true;
  if (IsPrefix(i) || IsPrefix(j)) return false;  // Layers below a.last, or from b.last on.
  for (size_t w = 0; w < a.bits.size(); ++w) {
    if ((a.bits[w] & ~b.bits[w]) != 0) return false;
  }
  return true;
}

std::vector<int> Ideals::LayersBetween(int i, int j) const {
  std::vector<int> layers;
  for (int l = 0; l < graph_.size(); ++l) {
    if (Has(j, l) && !Has(i, l)) layers.push_back(l);
  }
  return layers;
}

// What enters i's border is read by the stage, or by stages after it, or both.
void Ideals::AddBorder(int i, int j, StageSums& sums) const {
  constexpr size_t kFew = 4;  // Tensors; a row takes as long as all layers.
  if (IsPrefix(i) && IsPrefix(j) && ideals_[i].boundary.size() > kFew) {
    if (row_.from != i) FillRow(i);
    const Border& border = row_.borders[static_cast<size_t>(ideals_[j].layers)];
    sums.in_bytes += border.in;
    sums.in_copy_bytes += border.in_copy;
    sums.in_gradient_bytes += border.in_gradient;
    sums.out_bytes -= border.passing;
    sums.out_stash_bytes -= border.passing_stash;
    sums.out_gradient_bytes -= border.passing_gradient;
    return;
  }
  for (const int l : ideals_[i].boundary) {
    const CostGraph::Layer& layer = graph_.layers[l];
    bool read = false, passes = false;
    for (const int consumer : layer.consumers) {
      if (!Has(j, consumer)) {
        passes = true;
      } else if (!Has(i, consumer)) {
        read = true;
      }
      if (read && passes) break;
    }
    if (read) sums.in_bytes += layer.activation_bytes;
    if (read) sums.in_copy_bytes += layer.copy_bytes;
    if (passes) sums.out_bytes -= layer.activation_bytes;
    if (passes) sums.out_stash_bytes -= layer.sent_stash_bytes;
    if (!layer.needs_gradient) continue;
    if (passes) sums.out_gradient_bytes -= layer.activation_bytes;
    if (!read) continue;
    const int messages = GradientMessages(
        layer, [&](int consumer) { return Has(j, consumer) && !Has(i, consumer); });
    sums.in_gradient_bytes += messages * layer.activation_bytes;
  }
}

// AddBorder of the first layers of the order, for each number of them: each reader of a tensor of
// the border changes what those from it on have.
void Ideals::FillRow(int i) const {
  row_.from = i;
  row_.borders.assign(static_cast<size_t>(graph_.size()) + 1, {});
  for (const int l : ideals_[i].boundary) {
    const CostGraph::Layer& layer = graph_.layers[l];
    const int64_t bytes = layer.activation_bytes;
    const int64_t gradient = layer.needs_gradient ? bytes : 0;
    const std::vector<int>& readers = layer.consumers;
    const auto first = std::lower_bound(readers.begin(), readers.end(), ideals_[i].layers);
    row_.borders[0].passing += bytes;
    row_.borders[0].passing_stash += layer.sent_stash_bytes;
    row_.borders[0].passing_gradient += gradient;
    row_.borders[static_cast<size_t>(*first) + 1].in += bytes;
    row_.borders[static_cast<size_t>(*first) + 1].in_copy += layer.copy_bytes;
    for (auto reader = first; std::next(reader) != readers.end(); ++reader) {
      row_.borders[static_cast<size_t>(*reader) + 1].in_gradient += gradient;
    }
    Border& last = row_.borders[static_cast<size_t>(readers.back()) + 1];
    last.passing -= bytes;
    last.passing_stash -= layer.sent_stash_bytes;
    last.passing_gradient -= gradient;
    last.in_gradient -= gradient * (std::prev(readers.end()) - first - 1);  // One sum.
  }
  for (size_t n = 1; n < row_.borders.size(); ++n) {
    const Border& before = row_.borders[n - 1];
    Border& border = row_.borders[n];
    border.in += before.in;
    border.in_copy += before.in_copy;
    border.in_gradient += before.in_gradient;
    border.passing += before.passing;
    border.passing_stash += before.passing_stash;
    border.passing_gradient += before.passing_gradient;
  }
}

StageSums Ideals::Between(int i, int j, bool largest) const {
  const Ideal &a = ideals_[i], &b = ideals_[j];
  StageSums sums;
  sums.forward_ps = b.forward_ps - a.forward_ps;
  sums.backward_ps = b.backward_ps - a.backward_ps;
  sums.update_ps = b.update_ps - a.update_ps;
  sums.parameter_bytes = b.parameter_bytes - a.parameter_bytes;
  sums.stash_bytes = b.stash_bytes - a.stash_bytes;
  sums.out_bytes = b.crossing_bytes;
  sums.out_stash_bytes = b.crossing_stash_bytes;
  sums.out_gradient_bytes = b.crossing_gradient_bytes;
  AddBorder(i, j, sums);
  const auto inside = [&](int l) { return Has(j, l) && !Has(i, l); };
  const auto up = [&](int l) {
    do ++l;
    while (!inside(l));
    return l;
  };
  const auto down = [&](int l) {
    do --l;
    while (!inside(l));
    return l;
  };
  // Layers below a.shared are in both, above b.last in none.
  FillAllReduce(
      graph_, [&](int l) { return up(std::max(l, a.shared - 1)); },
      [&](int l) { return down(std::min(l, b.last + 1)); }, sums);
  if (!largest) return sums;
  sums.largest_scratch_bytes =
      graph_.layers[*std::find_if(by_scratch_.begin(), by_scratch_.end(), inside)].scratch_bytes;
  sums.largest_parameter_bytes =
      graph_.layers[*std::find_if(by_parameters_.begin(), by_parameters_.end(), inside)]
          .parameter_bytes;
  for (size_t g = 0; g < readers_.size(); ++g) {
    if (a.layers == 0 || std::any_of(readers_[g].begin(), readers_[g].end(), inside)) {
      sums.graph_input_bytes += graph_.graph_input_bytes[g];
    }
  }
  return sums;
}

int64_t Ideals::compute_ps(int i, CostModel model) const {
  const Ideal& ideal = ideals_[i];
  const int64_t updates = model == CostModel::kRuntime ? ideal.update_ps : 0;
  return ideal.forward_ps + ideal.backward_ps + updates;
}

}  // namespace pd
