#pragma once

#include <string>
#include <vector>

#include "network/layout.h"
#include "pipeline/comm.h"
#include "plan/plan.h"

namespace pd {

/// What a kind of link carries, all such links busy at once: between the ranks of one host, or
/// between hosts. Payload as workers exchange it, without the headers of MPI, TCP and Ethernet.
struct LinkReport {
  std::string name;                  ///< "between hosts".
  int members = 0;                   ///< Ranks of a host, or hosts.
  double both_ways_bytes_per_s = 0;  ///< Each way, while both carry data: the better of …
  double small_bytes_per_s = 0;      ///< … messages as all-reduces send them, of 60 KiB, and of
  double large_bytes_per_s = 0;      ///< messages as large borders have them, of up to 1 MiB.
  double one_way_bytes_per_s = 0;    ///< While the other direction carries next to nothing.
  double latency_ms = 0;             ///< Of a small message, from Comm::Send to Comm::Wait.
  double slowest_bytes_per_s = 0;    ///< Of the measured pairs and directions, both ways busy.
  std::string slowest;               ///< "from node0 to node3".
};

struct NetworkReport {
  HostLayout layout;
  std::vector<LinkReport> links;  ///< One a level, innermost first.
  Cluster cluster;  ///< Levels of more than one worker; bandwidths are those of both ways at once.
  std::vector<std::string> warnings;
};

struct NetworkOptions {
  double stream_s =
      0.25;  ///< Length of one measurement of a rate, of which a level has 13 or more.
  double latency_s = 0.2;  ///< Of the measurement of a level's latency.
};

/// Measures the network between the ranks with messages as training sends them, through the same
/// communication thread: pairs that share no link exchange at the same time, round after round.
/// A host's rate is that of all its ranks together; a level's is the median over pairs and
/// directions, of each of which the median of its repetitions counts. Collective: every rank of
/// `comm` takes part, says where it runs, and gets the same report. memory_bytes is 80 % of each
/// rank's share of what is free now. Throws as FindLayout does, on every rank alike.
NetworkReport MeasureNetwork(Comm& comm, const RankPlace& mine, const NetworkOptions& options = {});

/// The report as a table for people.
std::string FormatNetwork(const NetworkReport& report);

}  // namespace pd
