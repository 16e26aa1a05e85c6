#include "train/devices.h"

#include <fmt/format.h>

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
  info.label = "cuda:" + id.substr(id.size() - 1) + " GPU";
  info.device_id = id;
  return info;
}

RankInfo OnProcessor(int rank, int stage, const std::string& instructions,
                     const std::string& weights) {
  RankInfo info;
  info.rank = rank;
  info.stage = stage;
  info.host = fmt::format("host{}", rank);
  info.device = info.label = "cpu";
  info.instructions = instructions;
  info.weights = weights;
  return info;
}

std::string Refusal(const std::vector<RankInfo>& ranks) {
  try {
    CompareReplicas(ranks);
  } catch (const CollectiveError& error) {
    CHECK(error.code() == ErrorCode::kInvalidInput);
    return error.what();
  }
  return "";
}

TEST_CASE("replicas on devices of other kinds are refused, even with like weights") {
  RankInfo gpu = OnGpu(2, "a", "0000:01");
  gpu.stage = 1;
  gpu.weights = "d1";
  const RankInfo first = OnProcessor(0, 0, "AVX2", "d0"), second = OnProcessor(1, 1, "AVX2", "d1");
  const std::string refusal = Refusal({first, second, gpu});
  for (const char* word :
       {"stage 1", "rank 1 on host1 (cpu", "rank 2 on host-of-a (cuda:1 GPU)", "--device"})
    CHECK_THAT(refusal, ContainsSubstring(word));
  gpu.stage = 2;
  CHECK(Refusal({first, second, gpu}).empty());  // stages may differ
}

TEST_CASE("replicas that store weights in other orders are refused, with what makes them alike") {
  const RankInfo idle;
  const RankInfo first = OnProcessor(3, 0, "AVX512_CORE", "d0");
  CHECK(Refusal({first, idle, OnProcessor(1, 0, "AVX2", "d0")}).empty());
  const std::string refusal = Refusal({first, idle, OnProcessor(1, 0, "AVX2", "d1")});
  for (const char* word : {"stage 0", "rank 3 on host3 (cpu with AVX512_CORE)", "rank 1 on host1",
                           "mpirun -x DNNL_MAX_CPU_ISA", "lower of AVX512_CORE and AVX2"})
    CHECK_THAT(refusal, ContainsSubstring(word));
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
  CHECK(DeviceWarnings({ranks[0], ranks[1], ranks[3]}, true).empty());
}

TEST_CASE("ranks that take more memory than the plan allows a worker are named, with both") {
  Plan plan;
  RankInfo small, large, idle;
  small.stage = large.stage = 0;
  small.memory_bytes = 60'000'000;
  large.rank = 1;
  large.memory_bytes = 134'000'000;
  idle.rank = 2;
  idle.stage = -1;
  idle.memory_bytes = 999'000'000;
  const std::vector<RankInfo> ranks = {small, large, idle};
  CHECK(MemoryWarnings(plan, ranks).empty());
  plan.cluster.emplace();
  CHECK(MemoryWarnings(plan, ranks).empty());
  plan.cluster->memory_bytes = 60'000'000;
  const std::vector<std::string> warnings = MemoryWarnings(plan, ranks);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == "memory beyond the 60.0 MB that the plan allows a worker: rank 1 134 MB");
  plan.cluster->memory_bytes = 134'000'000;
  CHECK(MemoryWarnings(plan, ranks).empty());
}

TEST_CASE("ranks on processors share nothing and have no way of messages to tell") {
  RankInfo cpu;
  cpu.stage = 0;
  cpu.device = "cpu";
  CHECK(DeviceWarnings({cpu, cpu}).empty());
  const std::vector<std::string> tf32 = DeviceWarnings({cpu, cpu}, true);
  REQUIRE(tf32.size() == 1);
  CHECK_THAT(tf32[0], ContainsSubstring("no GPU"));
  CHECK(DeviceNotes({cpu, cpu}, "cpu").empty());
  CHECK(MessageNotes({cpu, cpu}, false).empty());
}

TEST_CASE("auto tells what it took, and GPUs tell the way of their messages") {
  const std::vector<RankInfo> ranks = {OnGpu(0, "a", "0000:01"), OnGpu(1, "a", "0000:02")};
  const std::vector<std::string> taken = DeviceNotes(ranks, "auto");
  REQUIRE(taken.size() == 1);
  CHECK(taken[0] == "device auto: cuda");
  CHECK(DeviceNotes(ranks, "cuda").empty());
  const std::vector<std::string> staged = MessageNotes(ranks, false),
                                 direct = MessageNotes(ranks, true);
  REQUIRE((staged.size() == 1 && direct.size() == 1));
  CHECK_THAT(staged[0], ContainsSubstring("pinned"));
  CHECK_THAT(direct[0], ContainsSubstring("GPU memory"));
}

TEST_CASE("auto that takes processors tells why CUDA does not work") {
  RankInfo cpu;
  cpu.stage = 0;
  cpu.device = "cpu";
  CHECK(DeviceNotes({cpu}, "auto") == std::vector<std::string>{"device auto: cpu"});
  cpu.broken_cuda = "unknown error";
  const std::vector<std::string> notes = DeviceNotes({cpu}, "auto");
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], ContainsSubstring("auto: cpu") && ContainsSubstring("rank 0") &&
                           ContainsSubstring("unknown error"));
}

}  // namespace
}  // namespace pd
