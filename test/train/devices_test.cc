#include "train/devices.h"

#include "support/catch.h"

namespace pd {
namespace {

RankInfo OnGpu(int rank, const std::string& machine, const std::string& id) {
  RankInfo info;
  info.rank = rank;
  info.stage = rank;
  info.host = "host-of-" + machine;
  info.machine = machine;
  info.device = "cuda";
  info.device_name = "GPU";
  info.device_id = id;
  return info;
}

TEST_CASE("ranks that share a GPU of one machine are named, others are not") {
  const std::vector<RankInfo> ranks = {OnGpu(0, "a", "0000:01"), OnGpu(1, "a", "0000:02"),
                                       OnGpu(2, "a", "0000:01"), OnGpu(3, "b", "0000:01"),
                                       OnGpu(4, "b", "0000:02")};
  const std::vector<std::string> warnings = DeviceWarnings(ranks);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], ContainsSubstring("ranks 0, 2 on host-of-a"));
  CHECK_THAT(warnings[0], ContainsSubstring("0000:01"));
  CHECK(DeviceWarnings({ranks[0], ranks[1], ranks[3]}).empty());
}

TEST_CASE("ranks on processors share nothing and have no way of messages to tell") {
  RankInfo cpu;
  cpu.stage = 0;
  cpu.device = "cpu";
  CHECK(DeviceWarnings({cpu, cpu}).empty());
  CHECK(DeviceNotes({cpu, cpu}, "cpu", false).empty());
}

TEST_CASE("auto tells what it took, and GPUs tell the way of their messages") {
  const std::vector<RankInfo> ranks = {OnGpu(0, "a", "0000:01"), OnGpu(1, "a", "0000:02")};
  const std::vector<std::string> staged = DeviceNotes(ranks, "auto", false);
  REQUIRE(staged.size() == 2);
  CHECK_THAT(staged[0], ContainsSubstring("auto") && ContainsSubstring("cuda"));
  CHECK_THAT(staged[1], ContainsSubstring("pinned"));
  const std::vector<std::string> direct = DeviceNotes(ranks, "cuda", true);
  REQUIRE(direct.size() == 1);
  CHECK_THAT(direct[0], ContainsSubstring("GPU memory"));
}

}  // namespace
}  // namespace pd
