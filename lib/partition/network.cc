#include "partition/network.h"

#include <algorithm>
#include <limits>

#include "plan/plan.h"

namespace pd {

SimulatedNetwork::SimulatedNetwork(const std::vector<SimulatedPipeline::Level>& levels,
                                   int workers) {
  int unit = 1;
  for (const auto& level : levels) {
    Level own;
    own.bytes_per_ms = level.bytes_per_ms;
    own.latency_ms = level.latency_ms;
    own.unit = unit;
    own.first_link = static_cast<int>(links_.size());
    own.links = (workers + unit - 1) / unit;
    links_.resize(links_.size() + 2 * static_cast<size_t>(own.links));
    for (auto l = static_cast<size_t>(own.first_link); l < links_.size(); ++l) {
      links_[l].bytes_per_ms = level.bytes_per_ms;
    }
    levels_.push_back(own);
    unit *= level.workers;
  }
}

int SimulatedNetwork::Outermost(int from, int to) const {
  auto level = static_cast<int>(levels_.size()) - 1;
  while (level > 0 && from / levels_[level].unit == to / levels_[level].unit) --level;
  return level;
}

SimulatedNetwork::Group SimulatedNetwork::MakeGroup(const SimulatedPipeline::Stage& stage,
                                                    int replicas) const {
  Group group;
  for (int r = 0; r < replicas; ++r) group.workers.push_back(stage.worker(r));
  group.share.assign(static_cast<size_t>(replicas) * levels_.size(), 0);
  auto inside = static_cast<int>(
      levels_.size() > 1 ? ReplicasTogether(group.workers, levels_[1].unit) : group.workers.size());
  if (inside == replicas) inside = 1;  // All send each other what they owe.
  for (size_t l = 0; l < levels_.size(); ++l) {
    std::unordered_map<int, int> together;  // replicas behind each link
    for (const int worker : group.workers) ++together[worker / levels_[l].unit];
    if (together.size() > 1) group.latency_ms = levels_[l].latency_ms;
    for (int r = 0; r < replicas; ++r) {
      const int others = replicas - together[group.workers[r] / levels_[l].unit];
      // Between machines one message stands for all that were summed inside.
      group.share[static_cast<size_t>(r) * levels_.size() + l] =
          static_cast<double>(others) / (l == 0 ? replicas : replicas * inside);
    }
  }
  group.peers = replicas - 1;
  if (inside > 1) {
    group.peers = inside - 1 + replicas / inside - 1;
    group.latency_ms += levels_[0].latency_ms;
  }
  return group;
}

int SimulatedNetwork::NewFlow() {
  if (unused_.empty()) {
    flows_.emplace_back();
    uses_.resize(uses_.size() + 2 * levels_.size());
    return static_cast<int>(flows_.size()) - 1;
  }
  const int flow = unused_.back();
  unused_.pop_back();
  flows_[flow].uses = 0;
  return flow;
}

void SimulatedNetwork::Send(double now, int from, int to, int64_t bytes, int64_t token) {
  const auto [at, fresh] =
      pair_of_.try_emplace((int64_t{from} << 32) | to, static_cast<int>(pairs_.size()));
  if (fresh) pairs_.push_back({from, to, {}});
  std::deque<Message>& messages = pairs_[at->second].messages;
  messages.push_back({bytes, token});
  if (messages.size() == 1) StartMessage(now, at->second);
}

void SimulatedNetwork::StartMessage(double now, int pair) {
  const int f = NewFlow();
  Flow& flow = flows_[f];
  const auto& [from, to, messages] = pairs_[pair];
  flow.pair = pair;
  flow.token = messages.front().token;
  flow.weight = 1;
  const int outermost = Outermost(from, to);
  for (int l = 0; l <= outermost; ++l) {
    Use(f, LinkOf(levels_[l], kOut, from), 1);
    Use(f, LinkOf(levels_[l], kIn, to), 1);
  }
  Start(now, f, static_cast<double>(messages.front().bytes));
}

void SimulatedNetwork::MoveHalf(double now, const Group& group, int replica, Direction direction,
                                int64_t bytes, double fraction, int64_t token) {
  const int f = NewFlow();
  Flow& flow = flows_[f];
  flow.pair = -1;
  flow.token = token;
  flow.weight = group.peers;
  const double* const share = &group.share[static_cast<size_t>(replica) * levels_.size()];
  for (size_t l = 0; l < levels_.size() && share[l] > 0; ++l) {
    Use(f, LinkOf(levels_[l], direction, group.workers[replica]), share[l] / share[0]);
  }
  Start(now, f, fraction * share[0] * static_cast<double>(bytes));
}

void SimulatedNetwork::Use(int f, int link, double share) {
  uses_[static_cast<size_t>(f) * 2 * levels_.size() + static_cast<size_t>(flows_[f].uses++)] = {
      link, share};
}

void SimulatedNetwork::Start(double now, int f, double bytes) {
  Flow& flow = flows_[f];
  flow.left = bytes;
  flow.rate = 0;
  flow.since = now;
  for (int u = 0; u < flow.uses; ++u) {
    Link& link = links_[UsesOf(f)[u].link];
    link.weight += flow.weight;
    link.flows.push_back(f);
  }
  Share(now, f);
}

// The flows on the links of `changed`, which has come or gone, get new rates.
void SimulatedNetwork::Share(double now, int changed) {
  for (int u = 0; u < flows_[changed].uses; ++u) {
    for (const int f : links_[UsesOf(changed)[u].link].flows) SetRate(now, f);
  }
}

void SimulatedNetwork::SetRate(double now, int f) {
  ++work_;
  Flow& flow = flows_[f];
  double rate = std::numeric_limits<double>::infinity();
  const LinkUse* const uses = UsesOf(f);
  for (int u = 0; u < flow.uses; ++u) {
    const Link& link = links_[uses[u].link];
    rate = std::min(rate, link.bytes_per_ms * (flow.weight / link.weight) / uses[u].share);
  }
  if (rate == flow.rate) return;
  flow.left = std::max(0.0, flow.left - flow.rate * (now - flow.since));
  flow.rate = rate;
  flow.since = now;
  flow.end = now + flow.left / rate;
  flow.order = order_++;
  const End end{flow.end, flow.order, f};
  if (flow.place < 0) {
    ends_.emplace_back();
    Rise(ends_.size() - 1, end);
  } else if (end < ends_[flow.place]) {
    Rise(static_cast<size_t>(flow.place), end);
  }
}

SimulatedNetwork::Completion SimulatedNetwork::Next() {
  while (!ends_.empty()) {
    const int f = ends_[0].flow;
    const Flow& flow = flows_[f];
    if (ends_[0].order == flow.order) return {flow.end, flow.token};
    Sink(0, {flow.end, flow.order, f});
  }
  return {std::numeric_limits<double>::infinity(), 0};
}

void SimulatedNetwork::Pop() {
  const End end = ends_[0];
  const End last = ends_.back();
  ends_.pop_back();
  if (!ends_.empty()) Sink(0, last);
  Flow& flow = flows_[end.flow];
  flow.place = -1;
  for (int u = 0; u < flow.uses; ++u) {
    Link& link = links_[UsesOf(end.flow)[u].link];
    link.flows.erase(std::find(link.flows.begin(), link.flows.end(), end.flow));
    // Sums of small whole numbers: exact.
    link.weight -= flow.weight;
  }
  Share(end.time, end.flow);
  unused_.push_back(end.flow);
  if (flow.pair < 0) return;
  const int pair = flow.pair;
  pairs_[pair].messages.pop_front();
  if (!pairs_[pair].messages.empty()) StartMessage(end.time, pair);
}

// ---- The heap.

void SimulatedNetwork::Place(size_t at, const End& end) {
  ends_[at] = end;
  flows_[end.flow].place = static_cast<int>(at);
}

void SimulatedNetwork::Rise(size_t at, const End& end) {
  while (at > 0 && end < ends_[(at - 1) / 2]) {
    Place(at, ends_[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  Place(at, end);
}

void SimulatedNetwork::Sink(size_t at, const End& end) {
  for (size_t child; (child = 2 * at + 1) < ends_.size(); at = child) {
    if (child + 1 < ends_.size() && ends_[child + 1] < ends_[child]) ++child;
    if (!(ends_[child] < end)) break;
    Place(at, ends_[child]);
  }
  Place(at, end);
}

}  // namespace pd
