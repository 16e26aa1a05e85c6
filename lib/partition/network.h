#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "partition/pipeline.h"

namespace pd {

/// The links of a simulated cluster: each worker has one of level 0, each machine one of level 1,
/// …, both directions apart. A flow passes the links of every level on which its ends lie apart;
/// flows on a link share it by their weights, as sockets do, and a flow is as fast as its slowest
/// link lets it. What a flow does not take of its share is lost: a bound below that of fair queues.
class SimulatedNetwork {
 public:
  enum Direction { kOut, kIn };
  struct Completion {
    double time = 0;
    int64_t token = 0;
  };
  /// Replicas of a stage that all-reduce. In each half of it, of the parts and of the results, each
  /// sends (m − 1)/m of a bucket, and receives as much.
  struct Group {
    std::vector<int> workers;
    double latency_ms = 0;
    int peers = 0;  ///< With which each exchanges something.
    /// [replica · levels + level]: the share of a bucket that passes its link of the level, one
    /// way.
    std::vector<double> share;
  };

  SimulatedNetwork(const std::vector<SimulatedPipeline::Level>& levels, int workers);

  /// Of the innermost level that joins two workers.
  double Latency(int from, int to) const { return levels_[Outermost(from, to)].latency_ms; }
  Group MakeGroup(const SimulatedPipeline::Stage& stage, int replicas) const;

  /// Starts to move a message, or queues it behind an earlier one from the same worker to the same
  /// one, since a pair of sockets keeps the order. `now` never goes back from call to call.
  void Send(double now, int from, int to, int64_t bytes, int64_t token);
  /// Starts to move the part `fraction` of a replica's half of a bucket's all-reduce. It goes to,
  /// or comes from, each peer by a socket of its own, hence their number as its weight.
  void MoveHalf(double now, const Group& group, int replica, Direction direction, int64_t bytes,
                double fraction, int64_t token);

  /// The next flow to end, if nothing starts before; infinite time if there is none.
  Completion Next();
  /// Removes the flow of Next().
  void Pop();
  /// Rates computed so far.
  int64_t work() const { return work_; }

 private:
  struct Level {
    double bytes_per_ms = 0, latency_ms = 0;
    int unit = 1;        // workers behind one link
    int first_link = 0;  // of kOut; those of kIn follow
    int links = 0;
  };
  struct Link {
    double bytes_per_ms = 0, weight = 0;  // weight: of its flows together
    std::vector<int> flows;
  };
  struct LinkUse {
    int link = 0;
    double share = 1;  // of the flow's bytes that pass the link
  };
  struct Message {
    int64_t bytes = 0, token = 0;
  };
  struct Pair {
    int from = 0, to = 0;
    std::deque<Message> messages;  // The first is under way.
  };
  struct Flow {
    int uses = 0;   // The first so many of its own in uses_.
    int pair = -1;  // of a message
    double left = 0, rate = 0, since = 0, weight = 1;
    double end = 0;     // At this rate.
    int64_t order = 0;  // In which rates were set: of flows that end together the first is first.
    int64_t token = 0;
    int place = -1;  // In ends_.
  };
  // In a heap. A flow that has become slower stays at its former place until it comes to the top.
  struct End {
    double time = 0;
    int64_t order = 0;
    int flow = 0;
    bool operator<(const End& other) const {
      return time != other.time ? time < other.time : order < other.order;
    }
  };

  int Outermost(int from, int to) const;
  int LinkOf(const Level& level, Direction direction, int worker) const {
    return level.first_link + (direction == kIn ? level.links : 0) + worker / level.unit;
  }
  int NewFlow();
  void StartMessage(double now, int pair);
  void Start(double now, int flow, double bytes);
  void Share(double now, int changed);
  const LinkUse* UsesOf(int flow) const {
    return &uses_[static_cast<size_t>(flow) * 2 * levels_.size()];
  }
  void SetRate(double now, int flow);
  void Use(int flow, int link, double share);
  void Place(size_t at, const End& end);
  void Rise(size_t at, const End& end);
  void Sink(size_t at, const End& end);

  std::vector<Level> levels_;
  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<LinkUse> uses_;  // [flow][2 · levels]
  std::vector<int> unused_;
  std::vector<Pair> pairs_;
  std::unordered_map<int64_t, int> pair_of_;  // from and to
  std::vector<End> ends_;
  int64_t order_ = 0, work_ = 0;
};

}  // namespace pd
