#include "network/layout.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace pd {
namespace {

bool SameHost(const RankPlace& a, const RankPlace& b) {
  return a.machine == b.machine && a.host == b.host;
}

int64_t LeastShare(const std::vector<RankPlace>& places) {
  struct Machine {
    int64_t bytes = INT64_MAX;
    int ranks = 0;
  };
  std::map<std::string, Machine> machines;
  for (const RankPlace& place : places) {
    Machine& machine = machines[place.machine];
    machine.bytes = std::min(machine.bytes, place.memory_bytes);
    ++machine.ranks;
  }
  int64_t least = INT64_MAX;
  for (const auto& [name, machine] : machines) {
    if (machine.bytes < INT64_MAX) least = std::min(least, machine.bytes / machine.ranks);
  }
  return least;
}

}  // namespace

HostLayout FindLayout(const std::vector<RankPlace>& places) {
  const int ranks = static_cast<int>(places.size());
  PD_REQUIRE(ranks >= 2,
             "expected two ranks or more, found {}: mpirun -np N pd-profile --network, one rank a "
             "worker",
             ranks);
  HostLayout layout;
  std::vector<int> firsts;  // rank
  for (int r = 0; r < ranks; ++r) {
    if (!firsts.empty() && SameHost(places[firsts.back()], places[r])) continue;
    for (const int first : firsts) {
      PD_REQUIRE(!SameHost(places[first], places[r]),
                 "expected ranks numbered host by host, found ranks {} and {} on {} and rank {} on "
                 "{}: mpirun --map-by slot numbers them so",
                 first, r, places[r].host, firsts.back(), places[firsts.back()].host);
    }
    firsts.push_back(r);
    layout.hosts.push_back(places[r].host);
  }
  firsts.push_back(ranks);
  layout.ranks_per_host = firsts[1];
  for (size_t h = 0; h + 1 < firsts.size(); ++h) {
    const int count = firsts[h + 1] - firsts[h];
    PD_REQUIRE(count == layout.ranks_per_host,
               "expected as many ranks on each host, since a cluster/1 file has levels of equal "
               "parts, found {} on {} and {} on {}",
               layout.ranks_per_host, layout.hosts[0], count, layout.hosts[h]);
  }
  layout.memory_bytes = LeastShare(places);
  return layout;
}

// All members but the last stand on a circle. In round r members r + i and r − i meet, and r meets
// the last one; with an odd number the last is nobody.
std::vector<std::vector<std::pair<int, int>>> PairRounds(int n, int most) {
  const int circle = n % 2 == 0 ? n - 1 : n;
  const int rounds = n < 2 ? 0 : std::min(circle, most);
  std::vector<std::vector<std::pair<int, int>>> result;
  for (int k = 0; k < rounds; ++k) {
    const int r = static_cast<int>(int64_t{k} * circle / rounds);
    std::vector<std::pair<int, int>> pairs;
    if (circle < n) pairs.emplace_back(r, n - 1);
    for (int i = 1; i <= (circle - 1) / 2; ++i) {
      const int a = (r + i) % circle, b = (r + circle - i) % circle;
      pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
    std::sort(pairs.begin(), pairs.end());
    result.push_back(std::move(pairs));
  }
  return result;
}

}  // namespace pd
