// Lines are read one by one into nodes and edges; edges are resolved once all nodes are known, and
// nodes come out in topological order through a heap of those whose inputs are out already.
#include "plan/graph_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "plan/layer_costs.h"

namespace pd {
namespace {

constexpr size_t kMaxShown = 60;
constexpr int64_t kMaxNumber = 1'000'000'000;

struct Node {
  int64_t number = 0;
  int line = 0;
  std::string type;  ///< Of the description: up to its first parenthesis or space.
  LayerCost cost;
  std::vector<size_t> producers, consumers;  ///< Indices, in the file's order of edges.
};

struct Edge {
  int64_t from = 0, to = 0;
  int line = 0;
};

std::string Shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMaxShown)) out += c >= 0x20 && c <= 0x7e ? c : '?';
  return fmt::format("\"{}{}\"", out, text.size() > kMaxShown ? "…" : "");
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string_view> Split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

/// The number of "node5"; nothing for anything else, zeros in front included: "node05" would be
/// another node than "node5" to those who wrote the file.
std::optional<int64_t> NodeNumber(std::string_view text) {
  constexpr std::string_view kNode = "node";
  if (text.substr(0, kNode.size()) != kNode) return std::nullopt;
  const std::string_view digits = text.substr(kNode.size());
  int64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stop != end || number < 0 || number > kMaxNumber) return std::nullopt;
  if (fmt::format("{}", number) != digits) return std::nullopt;
  return number;
}

bool IsInput(const Node& node) {
  constexpr std::string_view kInput = "Input";
  return node.type.compare(0, kInput.size(), kInput) == 0 &&
         node.type.find_first_not_of("0123456789", kInput.size()) == std::string::npos;
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  void Read(std::string_view text) {
    for (const std::string_view raw : Split(text, "\n")) {
      ++line_;
      const std::string_view line = Trimmed(raw);
      if (line.empty()) continue;
      const std::vector<std::string_view> fields = Split(line, " -- ");
      if (fields.size() == 2) {
        edges_.push_back({NumberOf(fields[0]), NumberOf(fields[1]), line_});
      } else {
        AddNode(line, fields);
      }
    }
    for (const Edge& edge : edges_) Connect(edge);
  }

  /// Indices of the layers in topological order.
  std::vector<size_t> Order() {
    const auto later = [&](size_t a, size_t b) { return nodes_[a].number > nodes_[b].number; };
    std::priority_queue<size_t, std::vector<size_t>, decltype(later)> ready(later);
    std::vector<size_t> missing(nodes_.size()), order;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      missing[n] = nodes_[n].producers.size();
      if (missing[n] == 0) ready.push(n);
    }
    size_t out = 0;
    for (; !ready.empty(); ++out) {
      const size_t n = ready.top();
      ready.pop();
      if (!IsInput(nodes_[n])) order.push_back(n);
      for (const size_t consumer : nodes_[n].consumers) {
        if (--missing[consumer] == 0) ready.push(consumer);
      }
    }
    if (out < nodes_.size()) FailOnCycle(missing);
    PD_REQUIRE(!order.empty(), "{}: expected one or more layers, found {}", file_,
               nodes_.empty() ? "no nodes" : "inputs only");
    CheckEdges(order.size());
    return order;
  }

  LayerCost Layer(size_t n) const {
    LayerCost cost = nodes_[n].cost;
    cost.name = Name(n);
    for (const size_t producer : nodes_[n].producers) cost.inputs.push_back(Name(producer));
    if (cost.inputs.empty())
      cost.inputs.push_back(fmt::format("input of node{}", nodes_[n].number));
    return cost;
  }

 private:
  std::string Name(size_t n) const {
    return fmt::format("node{} {}", nodes_[n].number, nodes_[n].type);
  }

  [[noreturn]] void Fail(int line, std::string_view expected, std::string_view found) const {
    Throw(ErrorCode::kInvalidInput, "{}:{}: expected {}, found {}", file_, line, expected, found);
  }

  int64_t NumberOf(std::string_view text) const {
    const auto number = NodeNumber(Trimmed(text));
    if (!number) Fail(line_, "\"node\" and a number up to 1000000000", Shown(text));
    return *number;
  }

  void AddNode(std::string_view line, const std::vector<std::string_view>& fields) {
    if (fields.size() != 3 && fields.size() != 4) {
      Fail(line_, "nodeN -- DESCRIPTION -- forward_compute_time=…, …, or nodeA -- nodeB",
           Shown(line));
    }
    Node node;
    node.number = NumberOf(fields[0]);
    node.line = line_;
    node.type = std::string(fields[1].substr(0, fields[1].find_first_of("( ")));
    for (const char c : node.type) {
      if (c < 0x21 || c > 0x7e) Fail(line_, "a description in printable ASCII", Shown(fields[1]));
    }
    if (node.type.empty()) Fail(line_, "a description", Shown(fields[1]));
    ReadCosts(fields[2], node.cost);
    constexpr std::string_view kStage = "stage_id=";
    if (fields.size() == 4 && fields[3].substr(0, kStage.size()) != kStage) {
      Fail(line_, "nothing more, or stage_id=N", Shown(fields[3]));
    }
    const auto [found, is_new] = index_.emplace(node.number, nodes_.size());
    if (!is_new) {
      Fail(line_, "a node that stands in no other line",
           fmt::format("node{}, as in line {}", node.number, nodes_[found->second].line));
    }
    nodes_.push_back(std::move(node));
  }

  // The four fields, each once, in any order.
  void ReadCosts(std::string_view text, LayerCost& cost) const {
    constexpr std::array<std::string_view, 4> kKeys = {
        "forward_compute_time", "backward_compute_time", "activation_size", "parameter_size"};
    std::array<bool, 4> seen = {};
    for (const std::string_view part : Split(text, ",")) {
      const std::string_view field = Trimmed(part);
      const size_t equals = field.find('=');
      const std::string_view key = field.substr(0, equals);
      const size_t k = std::find(kKeys.begin(), kKeys.end(), key) - kKeys.begin();
      if (k == kKeys.size() || equals == std::string_view::npos) {
        Fail(line_, fmt::format("fields {}", fmt::join(kKeys, ", ")), Shown(field));
      }
      if (seen[k]) Fail(line_, fmt::format("{} once", key), "it again");
      seen[k] = true;
      const std::string_view value = field.substr(equals + 1);
      if (k == 0) cost.forward_ms = Number(value, key, kMaxMs);
      if (k == 1) cost.backward_ms = Number(value, key, kMaxMs);
      if (k == 2) cost.activation_bytes = Bytes(value, key);
      if (k == 3) cost.parameter_bytes = Bytes(value, key);
    }
    for (size_t k = 0; k < kKeys.size(); ++k) {
      if (!seen[k]) Fail(line_, fmt::format("{}=NUMBER", kKeys[k]), "none");
    }
  }

  double Number(std::string_view text, std::string_view key, double max) const {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !(value >= 0 && value <= max)) {
      Fail(line_, fmt::format("{}: a number from 0 to {:g}", key, max), Shown(text));
    }
    return value + 0;  // no −0
  }

  // One number, or for a layer of several outputs [a; b; …], which are one to the planner.
  int64_t Bytes(std::string_view text, std::string_view key) const {
    const bool is_list = text.size() >= 2 && text.front() == '[' && text.back() == ']';
    const std::string_view numbers = is_list ? text.substr(1, text.size() - 2) : text;
    double sum = 0;
    for (const std::string_view part : Split(numbers, ";")) {
      sum += Number(is_list ? Trimmed(part) : part, key, static_cast<double>(kMaxBytes));
    }
    if (sum > static_cast<double>(kMaxBytes)) {
      Fail(line_, fmt::format("{}: a sum up to {:g}", key, static_cast<double>(kMaxBytes)),
           Shown(text));
    }
    return std::llround(sum);
  }

  void Connect(const Edge& edge) {
    for (const int64_t end : {edge.from, edge.to}) {
      if (index_.count(end) == 0) {
        Fail(edge.line, "an edge between two nodes of this file", fmt::format("node{}", end));
      }
    }
    const size_t from = index_.at(edge.from), to = index_.at(edge.to);
    if (IsInput(nodes_[to])) {
      Fail(edge.line, "an input that reads nothing",
           fmt::format("an edge to node{}, which is an {}", edge.to, nodes_[to].type));
    }
    // Node numbers stay below 2³⁰.
    if (!connected_.insert(edge.from << 30 | edge.to).second) {
      Fail(edge.line, "each edge once", fmt::format("node{} -- node{} again", edge.from, edge.to));
    }
    nodes_[from].consumers.push_back(to);
    nodes_[to].producers.push_back(from);
  }

  // A file that was cut short has lost edges, and its layers would count as independent. A single
  // node without any may be meant.
  void CheckEdges(size_t layers) const {
    if (layers > 1 && edges_.empty()) {
      Fail(nodes_[0].line, "edges (is the file cut short?)",
           fmt::format("{} nodes and none", nodes_.size()));
    }
    for (const Node& node : nodes_) {
      if (layers == 1 || !node.producers.empty() || !node.consumers.empty()) continue;
      Warn("{}:{}: node{} has no edges (is the file cut short?)", file_, node.line, node.number);
      return;
    }
  }

  // A cycle as "node2 Linear -> node3 ReLU -> node2 Linear", the middle of a long one left out.
  std::string Way(const std::vector<size_t>& cycle) const {
    constexpr size_t kMost = 8;
    std::string way;
    for (size_t i = 0; i < cycle.size(); ++i) {
      if (cycle.size() > kMost && i == kMost / 2) {
        way += fmt::format("{} more -> ", cycle.size() - kMost);
        i = cycle.size() - kMost / 2;
      }
      way += Name(cycle[i]) + " -> ";
    }
    return way + Name(cycle[0]);
  }

  // `missing`: producers of each node that never came out. From any such node back along such
  // producers one meets a node again, which lies on a cycle; shown from its smallest number on.
  [[noreturn]] void FailOnCycle(const std::vector<size_t>& missing) const {
    size_t n = 0;
    while (missing[n] == 0) ++n;
    std::vector<size_t> back;
    for (std::vector<bool> seen(nodes_.size()); !seen[n];) {
      seen[n] = true;
      back.push_back(n);
      n = *std::find_if(nodes_[n].producers.begin(), nodes_[n].producers.end(),
                        [&](size_t producer) { return missing[producer] > 0; });
    }
    std::vector<size_t> cycle(std::find(back.begin(), back.end(), n), back.end());
    std::reverse(cycle.begin(), cycle.end());
    const auto first = std::min_element(cycle.begin(), cycle.end(), [&](size_t a, size_t b) {
      return nodes_[a].number < nodes_[b].number;
    });
    std::rotate(cycle.begin(), first, cycle.end());
    Fail(nodes_[cycle[0]].line, "a graph without cycles", Way(cycle));
  }

  const std::string& file_;
  int line_ = 0;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::unordered_map<int64_t, size_t> index_;
  std::unordered_set<int64_t> connected_;
};

}  // namespace

bool LooksLikeGraphText(std::string_view text) {
  for (const std::string_view raw : Split(WithoutByteOrderMark(text), "\n")) {
    const std::string_view line = Trimmed(raw);
    if (line.empty()) continue;
    return NodeNumber(line.substr(0, line.find(' '))).has_value();
  }
  return false;
}

Profile ReadGraphText(std::string_view text, const std::string& file,
                      std::optional<int64_t> batch_size) {
  PD_REQUIRE(batch_size.has_value(),
             "{}: expected -b N, the samples of a minibatch, which a text profile does not say, "
             "found none",
             file);
  PD_REQUIRE(*batch_size >= 1 && *batch_size <= kMaxBatchSize,
             "{}: batch size: expected an integer from 1 to {}, found {}", file, kMaxBatchSize,
             *batch_size);
  Reader reader(file);
  reader.Read(WithoutByteOrderMark(text));
  Profile profile;
  profile.batch_size = *batch_size;
  for (const size_t n : reader.Order()) profile.layers.push_back(reader.Layer(n));
  return profile;
}

}  // namespace pd
