#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pd {

/// Where a rank runs. A host is a machine and a name on it: containers and virtual hosts of one
/// machine are hosts of their own, with a network between them; two machines may bear one name.
struct RankPlace {
  std::string machine;       ///< MachineId().
  std::string host;          ///< Transport::host().
  int64_t memory_bytes = 0;  ///< Free on the machine; INT64_MAX where unknown.
};

/// How the ranks lie on the hosts: rank r is on host r / ranks_per_host.
struct HostLayout {
  std::vector<std::string> hosts;  ///< Names, in the order of ranks.
  int ranks_per_host = 1;
  int64_t memory_bytes = 0;  ///< For each rank: the least share; INT64_MAX where unknown.
};

/// The layout of `places`, one a rank. Throws kInvalidInput, in one line that names hosts and
/// ranks: fewer than two ranks, hosts with different numbers of ranks, ranks that are not numbered
/// host by host. Memory: that of a machine is shared by all ranks on it, on whatever host.
HostLayout FindLayout(const std::vector<RankPlace>& places);

/// Rounds in which `n` members meet in pairs (first < second), each member at most once a round:
/// the circle method. All n(n − 1)/2 pairs once where that takes at most `most` rounds, otherwise
/// that many rounds spread evenly over all.
std::vector<std::vector<std::pair<int, int>>> PairRounds(int n, int most);

}  // namespace pd
