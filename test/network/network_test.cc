#include "network/network.h"

#include <thread>

#include "network/stream.h"
#include "support/catch.h"
#include "support/error_of.h"
#include "transport/loopback/loopback.h"

namespace pd {
namespace {

// Runs `work` on each rank of a loopback job, a thread a rank, and returns what it returned.
template <typename Result, typename Work>
std::vector<Result> OnRanks(int ranks, const Work& work) {
  LoopbackHub hub(ranks);
  std::vector<Result> results(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Comm comm(hub.transport(r), {.report_s = 10, .fail_s = 30});
      results[r] = work(comm);
      comm.Barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// Fake hosts of `per_host` ranks.
NetworkReport Measure(Comm& comm, int per_host) {
  const std::string host = "node" + std::to_string(comm.rank() / per_host);
  return MeasureNetwork(comm, {host, host, 1'000'000'000}, {.stream_s = 0.01, .latency_s = 0.01});
}

TEST_CASE("a cluster of hosts with several ranks has two levels, and all ranks get the same") {
  const auto reports = OnRanks<NetworkReport>(4, [](Comm& comm) { return Measure(comm, 2); });
  const Cluster& cluster = reports[0].cluster;
  REQUIRE(cluster.levels.size() == 2);
  for (const Cluster::Level& level : cluster.levels) {
    CHECK(level.workers == 2);
    CHECK(level.bandwidth_bytes_per_s > 1e6);
    CHECK(level.bandwidth_bytes_per_s < 1e12);
    CHECK(level.latency_ms > 0);
    CHECK(level.latency_ms < 100);
  }
  CHECK(cluster.memory_bytes == 400'000'000);
  CHECK(cluster.speeds.empty());
  for (const NetworkReport& report : reports) {
    CHECK(WriteCluster(report.cluster) == WriteCluster(cluster));
    CHECK(FormatNetwork(report) == FormatNetwork(reports[0]));
  }
  CHECK(ReadCluster(JsonView::Parse(WriteCluster(cluster), "cluster.json")).workers() == 4);
  const std::string table = FormatNetwork(reports[0]);
  CHECK_THAT(table, ContainsSubstring("2 hosts, 2 ranks each"));
  CHECK_THAT(table, ContainsSubstring("on a host"));
  CHECK_THAT(table, ContainsSubstring("between hosts"));
}

TEST_CASE("one rank a host, or one host, is one level") {
  const auto hosts = OnRanks<NetworkReport>(3, [](Comm& comm) { return Measure(comm, 1); });
  REQUIRE(hosts[0].cluster.levels.size() == 1);
  CHECK(hosts[0].cluster.levels[0].workers == 3);
  CHECK(hosts[0].links[0].name == "between hosts");
  const auto one = OnRanks<NetworkReport>(2, [](Comm& comm) { return Measure(comm, 2); });
  REQUIRE(one[0].cluster.levels.size() == 1);
  CHECK(one[0].cluster.levels[0].workers == 2);
  CHECK(one[0].links[0].name == "on a host");
}

TEST_CASE("every rank refuses a layout that no cluster file can say, in the same words") {
  const auto errors =
      OnRanks<std::string>(3, [](Comm& comm) { return ErrorOf([&] { Measure(comm, 2); }); });
  CHECK_THAT(errors[0], ContainsSubstring("found 2 on node0 and 1 on node1"));
  CHECK(errors[1] == errors[0]);
  CHECK(errors[2] == errors[0]);
}

TEST_CASE("a stream moves every message, each way, and counts those in the middle") {
  constexpr int kMessages = 20;
  constexpr size_t kBytes = 5000;
  struct Result {
    int64_t sent = 0, received = 0;
    Stream::Middle middle;
  };
  for (const bool both : {true, false}) {
    const auto results = OnRanks<Result>(2, [&](Comm& comm) {
      const bool first = comm.rank() == 0;
      Stream stream(comm, {1 - comm.rank(), both || first, both || !first, kBytes, kMessages});
      comm.Barrier();
      const int64_t sent = comm.bytes_sent(), received = comm.bytes_received();
      stream.Run();
      return Result{comm.bytes_sent() - sent, comm.bytes_received() - received, stream.middle()};
    });
    CHECK(results[0].sent == kMessages * int64_t{kBytes});
    CHECK(results[1].sent == (both ? kMessages * int64_t{kBytes} : 0));
    CHECK(results[1].received == kMessages * int64_t{kBytes});
    CHECK(results[1].middle.bytes == (kMessages - 2 * Stream::kUnderWay) * int64_t{kBytes});
    CHECK(results[1].middle.end_ns > results[1].middle.begin_ns);
    CHECK(results[0].middle.bytes == (both ? results[1].middle.bytes : 0));
  }
}

}  // namespace
}  // namespace pd
