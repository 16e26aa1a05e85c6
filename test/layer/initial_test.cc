#include <algorithm>
#include <cmath>

#include "layer/make.h"
#include "support/catch.h"

namespace pd {
namespace {

std::vector<float> Fill(const ParamSpec& spec, const char* layer, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(Elements(spec.shape)), -77.0F);
  FillInitial(spec, layer, seed, values.data());
  return values;
}

double Mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double Moment(const std::vector<float>& values, int power) {
  double sum = 0;
  for (const float value : values) sum += std::pow(double{value}, power);
  return sum / static_cast<double>(values.size());
}

TEST_CASE("The default of conv2d and linear is uniform in ±1/sqrt(fan in), weight and bias") {
  const auto conv =
      Make(R"("type": "conv2d", "out_channels": 200, "kernel": 5, "groups": 2)", {40, 9, 9});
  const auto linear = Make(R"("type": "linear", "out_features": 300)", {400});
  const double bounds[] = {1 / std::sqrt(20 * 5 * 5), 1 / std::sqrt(400)};
  const Layer* const layers[] = {conv.get(), linear.get()};
  for (size_t l = 0; l < 2; ++l) {
    const double bound = bounds[l];
    for (const ParamSpec& param : layers[l]->params()) {
      CAPTURE(layers[l]->type(), param.name);
      CHECK(param.init.kind == Init::Kind::kUniform);
      CHECK(param.init.value == Approx(bound));
      const auto values = Fill(param, "l", 1);
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      CHECK(*least >= static_cast<float>(-bound));
      CHECK(*most <= static_cast<float>(bound));
      CHECK(*least < -0.9 * bound);
      CHECK(*most > 0.9 * bound);
    }
    // 100,000 and 120,000 numbers; five standard deviations of mean and variance.
    const auto weight = Fill(layers[l]->params()[0], "l", 1);
    const auto count = static_cast<double>(weight.size());
    CHECK(Mean(weight) == Approx(0).margin(5 * bound / std::sqrt(3 * count)));
    CHECK(Moment(weight, 2) ==
          Approx(bound * bound / 3).margin(5 * bound * bound * std::sqrt(4 / 45.0 / count)));
  }
}

TEST_CASE("init: normal has the given deviation and a normal's fourth moment") {
  const auto linear =
      Make(R"("type": "linear", "out_features": 500, "init": {"weight": {"normal": 0.02},
      "bias": {"constant": 0.25}})",
           {401});
  const auto weight = Fill(linear->params()[0], "l", 3);
  const auto count = static_cast<double>(weight.size());
  CHECK(Mean(weight) == Approx(0).margin(5 * 0.02 / std::sqrt(count)));
  CHECK(Moment(weight, 2) == Approx(0.0004).margin(5 * 0.0004 * std::sqrt(2 / count)));
  // E x⁴ = 3σ⁴, its deviation sqrt(96/n)·σ⁴.
  CHECK(Moment(weight, 4) / 1.6e-7 == Approx(3).margin(5 * std::sqrt(96 / count)));
  for (const float value : Fill(linear->params()[1], "l", 3)) REQUIRE(value == 0.25F);
}

TEST_CASE("Embeddings of words and positions start normal, with deviation 1") {
  const auto words = MakeWith(R"("type": "embedding", "num_embeddings": 500, "embedding_dim": 401)",
                              {{{2}, DType::kI32}});
  const auto positions = Make(R"("type": "position_embedding")", {500, 401});
  for (const Layer* layer : {words.get(), positions.get()}) {
    const auto weight = Fill(layer->params()[0], "l", 3);
    const auto count = static_cast<double>(weight.size());
    CHECK(Mean(weight) == Approx(0).margin(5 / std::sqrt(count)));
    CHECK(Moment(weight, 2) == Approx(1).margin(5 * std::sqrt(2 / count)));
    CHECK(Moment(weight, 4) == Approx(3).margin(5 * std::sqrt(96 / count)));
  }
}

TEST_CASE("init: uniform has the given range; other parameters keep their default") {
  const auto linear =
      Make(R"("type": "linear", "out_features": 50, "init": {"weight": {"uniform": 3}})", {100});
  const auto weight = Fill(linear->params()[0], "l", 1);
  const auto [least, most] = std::minmax_element(weight.begin(), weight.end());
  CHECK(*least >= -3);
  CHECK(*least < -2.9F);
  CHECK(*most <= 3);
  CHECK(*most > 2.9F);
  CHECK(linear->params()[1].init.value == Approx(0.1));
}

TEST_CASE("batch_norm starts as the identity") {
  const auto norm = Make(R"("type": "batch_norm")", {5});
  const float expected[] = {1, 0, 0, 1};
  for (size_t i = 0; i < 4; ++i)
    CHECK(Fill(norm->params()[i], "l", 1) == std::vector<float>(5, expected[i]));
}

TEST_CASE("Initial values depend on seed, layer and parameter name, on nothing else") {
  const ParamSpec spec{"weight", {7, 9}, {Init::Kind::kUniform, 1}};
  const auto values = Fill(spec, "fc1", 5);
  CHECK(Fill(spec, "fc1", 5) == values);
  CHECK(Fill(spec, "fc1", 6) != values);
  CHECK(Fill(spec, "fc1", 5 + (uint64_t{1} << 40)) != values);
  CHECK(Fill(spec, "fc10", 5) != values);
  ParamSpec bias = spec;
  bias.name = "bias";
  CHECK(Fill(bias, "fc1", 5) != values);
  // Elements are numbered, so a longer parameter starts with the same ones: nothing before them
  // counts.
  ParamSpec longer = spec;
  longer.shape = {101};
  auto start = Fill(longer, "fc1", 5);
  start.resize(values.size());
  CHECK(start == values);
}

TEST_CASE("Keys keep layer and purpose apart") {
  CHECK(LayerKey(1, "ab", "c") != LayerKey(1, "a", "bc"));
  CHECK(LayerKey(1, "a", "b") != LayerKey(2, "a", "b"));
  CHECK(LayerKey(1, "a", "b") == LayerKey(1, "a", "b"));
}

}  // namespace
}  // namespace pd
