#include <cmath>

#include "backend/graph.h"
#include "base/random.h"
#include "support/catch.h"

namespace pd::test {
namespace {

constexpr uint64_t kSeed = 7;  // Graph's own
const Shape kShape = {7, 17, 15, 11};
const char* const kChain = R"([{"name":"conv","type":"conv2d","out_channels":17,"kernel":1},
                               {"name":"drop","type":"dropout","p":0.3}])";

Tensor Ones(const Shape& shape) {
  const auto count = static_cast<size_t>(Elements(shape));
  return {.shape = shape, .dtype = DType::kF32, .values = std::vector<double>(count, 1.0)};
}

/// Dropout of ones, on whatever layout a convolution leaves: its weights are 0 and its bias is 1.
struct DroppedOnes {
  DroppedOnes(Backend& backend, uint64_t minibatch, bool training)
      : graph(backend, kChain, {Ones(kShape)}), slot(graph.MakeSlot()) {
    Tensor weight = Ones({17, 17, 1, 1});
    for (double& value : weight.values) value = 0;
    graph.SetParam("conv.weight", weight);
    graph.SetParam("conv.bias", Ones({17}));
    graph.Forward(slot, {Ones(kShape)}, minibatch, training);
    y = graph.Output(slot);
  }
  Graph graph;
  Graph::Slot* slot;
  Tensor y;
};

TEST_CASE("dropout keeps the same elements on every backend and in every layout", "[dropout]") {
  const uint64_t key = LayerKey(kSeed, "drop", "dropout");
  const float p = 0.3F;
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    DroppedOnes dropped(*backend, 3, true);
    double sum = 0;
    size_t kept = 0;
    for (size_t i = 0; i < dropped.y.values.size(); ++i) {
      const bool keeps = DropoutKeeps(key, 3, i, p);
      REQUIRE(dropped.y.values[i] == (keeps ? Approx(1 / 0.7) : Approx(0.0)));
      sum += dropped.y.values[i];
      kept += keeps ? 1 : 0;
    }
    // Five standard deviations of a share of n samples.
    const auto n = static_cast<double>(dropped.y.values.size());
    const double five = 5 * std::sqrt(0.3 * 0.7 / n);
    CHECK(static_cast<double>(kept) / n == Approx(0.7).margin(five));
    CHECK(sum / n == Approx(1.0).margin(five / 0.7));
    // The gradient passes where the value did.
    dropped.graph.Backward(dropped.slot, Ones(kShape));
    const Tensor bias = dropped.graph.ParamGradient(dropped.slot, "conv.bias");
    double total = 0;
    for (const double value : bias.values) total += value;
    CHECK(total == Approx(sum));
  }
}

TEST_CASE("dropout takes another mask for each minibatch, and the same one again", "[dropout]") {
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    const Tensor y = DroppedOnes(*backend, 3, true).y;
    CheckEqual(DroppedOnes(*backend, 3, true).y, y, kind);
    CHECK(DroppedOnes(*backend, 4, true).y.values != y.values);
  }
}

TEST_CASE("dropout changes nothing in evaluation", "[dropout]") {
  for (const std::string& kind : Kinds()) {
    const auto backend = MakeBackend(kind, 1);
    CheckEqual(DroppedOnes(*backend, 3, false).y, Ones(kShape), kind);
  }
}

}  // namespace
}  // namespace pd::test
