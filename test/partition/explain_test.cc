#include "base/error.h"
#include "partition/partition.h"
#include "support/catch.h"

namespace pd {
namespace {

// A chain of layers of 10 ms forward, those with parameters 10 ms backward.
std::string ExplanationOf(const std::vector<int64_t>& parameter_bytes) {
  Profile profile;
  profile.batch_size = 8;
  for (size_t l = 0; l < parameter_bytes.size(); ++l) {
    LayerCost layer;
    layer.name = "layer" + std::to_string(l);
    layer.forward_ms = 10;
    layer.backward_ms = parameter_bytes[l] > 0 ? 10 : 0;
    layer.activation_bytes = 1000;
    layer.parameter_bytes = parameter_bytes[l];
    profile.layers.push_back(layer);
  }
  PartitionOptions options;
  options.cluster.levels.push_back({static_cast<int>(parameter_bytes.size()), 1e9, 0});
  return Explain(profile, options, Partition(profile, options));
}

// The line that starts with `word`.
std::string RowOf(const std::string& text, const std::string& word) {
  const size_t begin = text.find("\n" + word);
  REQUIRE(begin != std::string::npos);
  return text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
}

TEST_CASE("with model parallelism those stages take turns that wait for gradients") {
  CHECK_THAT(RowOf(ExplanationOf({1000, 1000, 1000}), "model parallel"),
             ContainsSubstring("one minibatch in flight: 3 stages in turn"));
  // Nothing is to be learned in the first layer, so no gradient comes back to its stage.
  CHECK_THAT(RowOf(ExplanationOf({0, 1000, 1000}), "model parallel"),
             ContainsSubstring("one minibatch in flight: 2 of 3 stages in turn"));
  const std::string row = RowOf(ExplanationOf({0, 1000}), "model parallel");
  CHECK_THAT(row, !ContainsSubstring("in turn"));
  CHECK_THAT(row, ContainsSubstring("compute of stage 1"));
}

}  // namespace
}  // namespace pd
