#include "network/layout.h"

#include <set>

#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

// Places of "a0 a0 b1": machine a host 0 twice, then machine b host 1. Memory of 100 a machine.
std::vector<RankPlace> Places(const std::vector<std::string>& words) {
  std::vector<RankPlace> places;
  for (const std::string& word : words) {
    places.push_back({word.substr(0, 1), "node" + word.substr(1), 100});
  }
  return places;
}

TEST_CASE("ranks on one host are the inner level, hosts the outer one") {
  const HostLayout layout = FindLayout(Places({"a0", "a0", "b1", "b1", "c2", "c2"}));
  CHECK(layout.hosts == std::vector<std::string>{"node0", "node1", "node2"});
  CHECK(layout.ranks_per_host == 2);
  CHECK(FindLayout(Places({"a0", "a0", "a0"})).ranks_per_host == 3);
  CHECK(FindLayout(Places({"a0", "b1", "c2"})).ranks_per_host == 1);
}

TEST_CASE("two machines of one name are two hosts, and so are two hosts of one machine") {
  CHECK(FindLayout(Places({"a0", "b0"})).hosts.size() == 2);
  CHECK(FindLayout(Places({"a0", "a1"})).hosts.size() == 2);
}

TEST_CASE("memory is shared by the ranks of a machine, on whatever host of it") {
  CHECK(FindLayout(Places({"a0", "b1"})).memory_bytes == 100);
  CHECK(FindLayout(Places({"a0", "a0", "b1", "b1"})).memory_bytes == 50);
  CHECK(FindLayout(Places({"a0", "a1", "a2", "a3"})).memory_bytes == 25);
  std::vector<RankPlace> places = Places({"a0", "b1"});
  places[1].memory_bytes = 60;
  CHECK(FindLayout(places).memory_bytes == 60);
  places[0].memory_bytes = places[1].memory_bytes = INT64_MAX;
  CHECK(FindLayout(places).memory_bytes == INT64_MAX);
}

TEST_CASE("what a cluster file cannot say is refused with hosts and ranks") {
  CHECK_THAT(ErrorOf([] { FindLayout(Places({"a0"})); }),
             ContainsSubstring("expected two ranks or more, found 1"));
  CHECK_THAT(ErrorOf([] {
               FindLayout(Places({"a0", "b1", "a0", "b1"}));
             }),
             ContainsSubstring("expected ranks numbered host by host, found ranks 0 and 2 on node0 "
                               "and rank 1 on node1"));
  CHECK_THAT(ErrorOf([] {
               FindLayout(Places({"a0", "a0", "b1"}));
             }),
             ContainsSubstring("found 2 on node0 and 1 on node1"));
  CHECK_THAT(ErrorOf([] {
               FindLayout(Places({"a0", "b1", "b1"}));
             }),
             ContainsSubstring("found 1 on node0 and 2 on node1"));
}

TEST_CASE("rounds bring every pair together once, and nobody meets two others at a time") {
  for (int n = 2; n <= 17; ++n) {
    CAPTURE(n);
    const auto rounds = PairRounds(n, 100);
    CHECK(static_cast<int>(rounds.size()) == (n % 2 == 0 ? n - 1 : n));
    std::set<std::pair<int, int>> met;
    for (const auto& pairs : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : pairs) {
        CHECK((0 <= a && a < b && b < n));
        CHECK(busy.insert(a).second);
        CHECK(busy.insert(b).second);
        CHECK(met.insert({a, b}).second);
      }
      CHECK(static_cast<int>(pairs.size()) == n / 2);
    }
    CHECK(static_cast<int>(met.size()) == n * (n - 1) / 2);
  }
  CHECK(PairRounds(1, 8).empty());
  CHECK(PairRounds(250, 8).size() == 8);
}

}  // namespace
}  // namespace pd
