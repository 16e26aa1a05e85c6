#include "base/error.h"
#include "plan/documents.h"
#include "plan/plan.h"
#include "support/catch.h"

namespace pd {
namespace {

void Refused(const std::string& from, const std::string& to, const std::string& message) {
  CAPTURE(from, to);
  CHECK_THROWS_WITH(ReadCluster(ParseText(With(ClusterText(), from, to))),
                    ContainsSubstring(message));
}

TEST_CASE("a cluster is read, written and read back") {
  const std::string text = With(ClusterText(), "\"levels\"",
                                R"("memory_bytes": 1000, "speeds": [1, 1, 0.5, 2], "levels")");
  const Cluster cluster = ReadCluster(ParseText(text));
  CHECK(cluster.workers() == 4);
  CHECK(cluster.levels[0].bandwidth_bytes_per_s == 1.25e8);
  CHECK(cluster.memory_bytes == 1000);
  CHECK(cluster.speeds.size() == 4);
  const std::string written = WriteCluster(cluster);
  CHECK(written.find("pipedream.cluster/1") < written.find("levels"));
  CHECK(WriteCluster(ReadCluster(ParseText(written))) == written);
}

TEST_CASE("clusters that make no sense are refused with their place") {
  Refused("cluster/1", "profile/1", "/format: expected \"pipedream.cluster/1\"");
  Refused("\"workers\": 4", "\"workers\": 0", "/levels/0/workers: expected an integer from 1");
  Refused("\"workers\": 4", "\"workers\": 2.5", "/levels/0/workers: expected an integer");
  Refused("\"workers\": 4", "\"worker\": 4", "did you mean \"workers\"?");
  Refused("1.25e8", "0", "/levels/0/bandwidth_bytes_per_s: expected a number from 1");
  Refused("1.25e8", "-1", "bandwidth_bytes_per_s");
  Refused("1.25e8", "\"10Gbps\"", "bandwidth_bytes_per_s");
  Refused("1.25e8", "1e31", "bandwidth_bytes_per_s");
  Refused("0.1", "-0.1", "/levels/0/latency_ms");
  Refused(R"(, "latency_ms": 0.1)", "", "expected a key \"latency_ms\"");
  Refused("[{", "[], \"x\": [{", "unknown key \"x\"");
  Refused("\"levels\"", R"("speeds": [1, 1], "levels")", "/speeds: expected 4 numbers");
  Refused("\"levels\"", R"("memory_bytes": 0, "levels")", "/memory_bytes");
  Refused("0.1}", R"(0.1}, {"workers": 65536, "bandwidth_bytes_per_s": 1, "latency_ms": 0})",
          "/levels: expected at most 65536 workers");
}

}  // namespace
}  // namespace pd
