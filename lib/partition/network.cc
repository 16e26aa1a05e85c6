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
    return static_cast<int>(flows_.size()) - 1;
  }
  const int flow = unused_.back();
  unused_.pop_back();
  flows_[flow].uses.clear();
  return flow;
}

void SimulatedNetwork::Send(double now, int from, int to, int64_t bytes, int64_t token) {
  const auto [at, fresh] =
      pair_of_.emplace((int64_t{from} << 32) | to, static_cast<int>(pairs_.size()));
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
    flow.uses.push_back({LinkOf(levels_[l], kOut, from), 1});
    flow.uses.push_back({LinkOf(levels_[l], kIn, to), 1});
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
    flow.uses.push_back(
        {LinkOf(levels_[l], direction, group.workers[replica]), share[l] / share[0]});
  }
  Start(now, f, fraction * share[0] * static_cast<double>(bytes));
}

void SimulatedNetwork::Start(double now, int f, double bytes) {
  Flow& flow = flows_[f];
  flow.left = bytes;
  flow.rate = 0;
  flow.since = now;
  flow.active = true;
  for (const Use& use : flow.uses) {
    links_[use.link].weight += flow.weight;
    links_[use.link].flows.push_back(f);
  }
  Share(now, flow);
}

// The flows on the links of `changed`, which has come or gone, get new rates.
void SimulatedNetwork::Share(double now, const Flow& changed) {
  for (const Use& use : changed.uses) {
    for (const int f : links_[use.link].flows) SetRate(now, f);
  }
}

void SimulatedNetwork::SetRate(double now, int f) {
  ++work_;
  Flow& flow = flows_[f];
  double rate = std::numeric_limits<double>::infinity();
  for (const Use& use : flow.uses) {
    const Link& link = links_[use.link];
    rate = std::min(rate, link.bytes_per_ms * (flow.weight / link.weight) / use.share);
  }
  if (rate == flow.rate) return;
  flow.left = std::max(0.0, flow.left - flow.rate * (now - flow.since));
  flow.rate = rate;
  flow.since = now;
  ends_.push({now + flow.left / rate, order_++, f, ++flow.version});
}

SimulatedNetwork::Completion SimulatedNetwork::Next() {
  while (!ends_.empty()) {
    const End& end = ends_.top();
    const Flow& flow = flows_[end.flow];
    if (flow.active && flow.version == end.version) return {end.time, flow.token};
    ends_.pop();
  }
  return {std::numeric_limits<double>::infinity(), 0};
}

void SimulatedNetwork::Pop() {
  const End end = ends_.top();
  ends_.pop();
  Flow& flow = flows_[end.flow];
  flow.active = false;
  for (const Use& use : flow.uses) {
    Link& link = links_[use.link];
    link.flows.erase(std::find(link.flows.begin(), link.flows.end(), end.flow));
    // Sums of small whole numbers: exact.
    link.weight -= flow.weight;
  }
  Share(end.time, flow);
  unused_.push_back(end.flow);
  if (flow.pair < 0) return;
  const int pair = flow.pair;
  pairs_[pair].messages.pop_front();
  if (!pairs_[pair].messages.empty()) StartMessage(end.time, pair);
}

}  // namespace pd
