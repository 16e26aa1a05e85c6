#include <fmt/core.h>

#include "base/text.h"
#include "partition/partition.h"
#include "partition/replicas.h"
#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

Profile Chain(int layers) {
  Profile profile;
  profile.batch_size = 8;
  for (int l = 0; l < layers; ++l) {
    LayerCost layer;
    layer.name = "layer" + std::to_string(l);
    layer.forward_ms = layer.backward_ms = 10;
    layer.activation_bytes = layer.parameter_bytes = 1000;
    profile.layers.push_back(layer);
  }
  return profile;
}

std::string TableOf(const Profile& profile, const PartitionOptions& options) {
  return FormatTable(Partition(profile, options), options);
}

TEST_CASE("replicas are written short, and what is written is read") {
  const std::vector<std::pair<std::vector<int>, std::string>> cases = {
      {{1}, "1"},
      {{7, 1}, "7-1"},
      {{1, 1, 1, 1}, "1-1-1-1"},
      {std::vector<int>(64, 1), "1x64"},
      {{3, 2, 2, 2, 2, 2, 1}, "3-2x5-1"}};
  for (const auto& [replicas, text] : cases) {
    CAPTURE(text);
    CHECK(FormatReplicas(replicas) == text);
    CHECK(ParseReplicas(text, "--replicas") == replicas);
  }
  CHECK(ParseReplicas("3,1", "x") == std::vector{3, 1});
  CHECK(ParseReplicas("2x2,1", "x") == std::vector{2, 2, 1});
  for (const char* const text : {"", "-", "0", "1-", "-1", "1x0", "1x", "x1", "1x2x3", "4097",
                                 "1x4097", "1x4000,1x4000", "1 1", "1.5", "+1"}) {
    CAPTURE(text);
    CHECK_THAT(ErrorOf([&] { ParseReplicas(text, "--replicas"); }),
               ContainsSubstring("--replicas: expected "));
  }
}

TEST_CASE("a gap to the proven bound is never said to be nothing") {
  PartitionOptions options;
  options.cluster.levels.push_back({2, 1e9, 0});
  PartitionResult result = Partition(Chain(4), options);
  result.exact = false;
  result.lower_bound_ms = result.bottleneck_ms * (1 - 1e-6);
  CHECK_THAT(FormatTable(result, options), ContainsSubstring("(under 0.1 % less)"));
  result.lower_bound_ms = result.bottleneck_ms * 0.75;
  CHECK_THAT(FormatTable(result, options), ContainsSubstring("(25.0 % less)"));
}

TEST_CASE("the heading of a table plans the same plan again") {
  const Profile profile = Chain(6);
  PartitionOptions options;
  options.cluster.levels.push_back({6, 1e9, 0});
  options.strategy = Strategy::kStraight;
  const std::string table = TableOf(profile, options);
  REQUIRE(table.rfind("plan 1x6: batch 8, 6 workers, ", 0) == 0);
  options.strategy = Strategy::kAuto;
  options.replicas = ParseReplicas("1x6", "--replicas");
  CHECK(TableOf(profile, options) == table);
}

TEST_CASE("a table says where a large graph leaves plans out of the comparison") {
  PartitionOptions options;
  options.compare = false;
  const auto check = [&](int layers, double bytes_per_s, bool few) {
    const Profile profile = Chain(layers);
    options.cluster.levels = {{16, bytes_per_s, 0}};
    const PartitionResult result = Partition(profile, options);
    CHECK(result.few_rivals == few);
    CHECK(result.rivals > 0);
    const std::string line =
        fmt::format("\na large graph: compared with only {}", Counted(result.rivals, "other plan"));
    const bool said = FormatTable(result, options).find(line) != std::string::npos;
    CHECK(said == few);
  };
  check(248, 1e3, false);  // 249 ideals on 16 workers are less than 4,000.
  check(250, 1e3, true);
  check(250, 1e9, false);  // Data parallelism keeps all workers busy: nothing can be faster.
}

TEST_CASE("names that turn or hide the text around them are shown by their numbers in a table") {
  Profile profile = Chain(1);
  profile.layers[0].name = "a\u202Eb";
  PartitionOptions options;
  options.cluster.levels.push_back({1, 1e9, 0});
  const std::string table = TableOf(profile, options);
  CHECK_THAT(table, ContainsSubstring("a\\u202eb (1)"));
  CHECK_THAT(table, !ContainsSubstring("\u202E"));
}

TEST_CASE("what does not fit is said in the units of the flag that helps") {
  const Profile profile = Chain(1);
  PartitionOptions options;
  options.cluster.levels.push_back({1, 1e9, 0});
  options.cluster.memory_bytes = 1;
  const std::string error = ErrorOf([&] { Partition(profile, options); });
  CHECK_THAT(error, ContainsSubstring("no plan fits 1 B a worker: the tightest layer is "
                                      "\"layer0\", "));
  CHECK_THAT(error, ContainsSubstring("that its stage of 1 layer needs with 1 minibatch in flight; "
                                      "the nearest limit that works: --memory "));
}

}  // namespace
}  // namespace pd
