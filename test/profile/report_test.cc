#include "profile/report.h"

#include "support/catch.h"

namespace pd {
namespace {

ProfileResult TwoLayers() {
  ProfileResult result;
  result.profile.batch_size = 8;
  result.profile.minibatches = 50;
  result.profile.device = DeviceInfo{"cpu", "A processor", 1, "oneDNN 1.2.3"};
  LayerCost fc;
  fc.name = "fc";
  fc.forward_ms = 1.5;
  fc.backward_ms = 3;
  fc.update_ms = 0.5;
  fc.activation_bytes = 4000;
  fc.parameter_bytes = 2'000'000;
  fc.stash_bytes = 0;
  LayerCost loss;
  loss.name = "verlust_µ";
  loss.forward_ms = loss.backward_ms = 2.5;
  loss.update_ms = 0;
  loss.stash_bytes = 12;
  result.profile.layers = {fc, loss};
  result.warmup = 5;
  result.layers_ms = 10;
  result.untimed_ms = 10;
  result.untimed_p90_ms = 11;
  result.pieces = {{0, 2}};
  return result;
}

TEST_CASE("the table has a row a layer, the total, and the sum beside an untimed pass") {
  const std::string table = FormatProfile(TwoLayers());
  CHECK_THAT(table, ContainsSubstring("batch 8") && ContainsSubstring("cpu (A processor)") &&
                        ContainsSubstring("oneDNN 1.2.3"));
  CHECK_THAT(table, ContainsSubstring(
                        "\nfc             1.500      3.000      0.500     4.00 kB         0 B"));
  CHECK_THAT(table, ContainsSubstring("\nverlust_µ      2.500      2.500      0.000"));
  CHECK_THAT(table, ContainsSubstring("\ntotal          4.000      5.500      0.500     4.00 kB"));
  CHECK_THAT(table, ContainsSubstring("sum of the layers 10.000 ms") &&
                        ContainsSubstring("10.000 ms (p90 11.000 ms)"));
}

TEST_CASE("times that cannot be trusted are warned about") {
  ProfileResult result = TwoLayers();
  CHECK(ProfileWarnings(result).empty());
  result.layers_ms = 11.5;
  REQUIRE(ProfileWarnings(result).size() == 1);
  CHECK_THAT(ProfileWarnings(result)[0], ContainsSubstring("differs by 15 %"));
  result.layers_ms = 8.5;
  CHECK(ProfileWarnings(result).size() == 1);
  result.layers_ms = 10;
  result.untimed_p90_ms = 13.5;
  REQUIRE(ProfileWarnings(result).size() == 1);
  CHECK_THAT(ProfileWarnings(result)[0], ContainsSubstring("noisy"));
  result.untimed_p90_ms = 10;
  result.lost_share = 0.2;
  REQUIRE(ProfileWarnings(result).size() == 1);
  CHECK_THAT(ProfileWarnings(result)[0], ContainsSubstring("20 %"));
}

}  // namespace
}  // namespace pd
