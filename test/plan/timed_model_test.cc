#include "plan/timed_model.h"

#include "base/error.h"
#include "model/model.h"
#include "plan/documents.h"
#include "support/catch.h"

namespace pd {
namespace {

Plan PlanOf(const std::string& costs) {
  Plan plan = ReadPlan(ParseText(PlanText()));
  plan.model.reset();
  plan.layers =
      ReadProfile(ParseText(R"({"format": "pipedream.profile/1", "batch_size": 4, "layers": )" +
                            costs + "}"))
          .layers;
  return plan;
}

TEST_CASE("a plan's costs become a model of the same graph with the same bytes") {
  const Plan plan = PlanOf(CostsText());
  const Model model = Model::Parse(TimedModel(plan));
  REQUIRE(model.num_layers() == 4);
  for (int l = 0; l < 4; ++l) {
    const LayerCost& cost = plan.layers[static_cast<size_t>(l)];
    const Layer& layer = *model.layers()[static_cast<size_t>(l)].layer;
    CHECK(layer.name() == cost.name);
    CHECK(layer.type() == "timed");
    int64_t parameters = 0;
    for (const ParamSpec& param : layer.params()) parameters += Elements(param.shape);
    CHECK(parameters * 4 == cost.weight_bytes());
    CHECK(layer.is_loss() == (cost.name == "loss"));
    if (layer.is_loss()) continue;
    CHECK(static_cast<int64_t>(layer.output().Bytes(plan.batch_size)) == cost.activation_bytes);
  }
  // flat → fc1 → sum, flat → sum, sum → loss.
  CHECK(model.consumers(model.OutputOf(0)) == std::vector<int>{1, 2});
  CHECK(model.consumers(model.OutputOf(2)) == std::vector<int>{3});
}

TEST_CASE(
    "a profile without inputs is a chain, and odd bytes round up to whole elements a sample") {
  const Plan plan = PlanOf(R"([
    {"name": "sample", "inputs": [], "forward_ms": 1, "backward_ms": 2, "activation_bytes": 33, "parameter_bytes": 102764545},
    {"name": "b", "inputs": [], "forward_ms": 1, "backward_ms": 2, "activation_bytes": 0, "parameter_bytes": 0},
    {"name": "c", "inputs": [], "forward_ms": 1, "backward_ms": 2, "activation_bytes": 0, "parameter_bytes": 0}])");
  const Model model = Model::Parse(TimedModel(plan));
  REQUIRE(model.num_layers() == 3);
  CHECK(model.layers()[0].layer->output().Bytes(4) == 48);
  const auto parameters = static_cast<double>(Elements(model.layers()[0].layer->params()[0].shape));
  CHECK(4 * parameters >= 102764545.0);
  CHECK(4 * parameters <= 102764545.0 * 1.001);
  CHECK(model.consumers(model.OutputOf(0)) == std::vector<int>{1});
  CHECK(model.layers()[2].layer->is_loss());
}

TEST_CASE("every layer that no other reads is a loss: the last one the main one") {
  const Model model = Model::Parse(TimedModel(PlanOf(R"([
    {"name": "a", "inputs": ["x"], "forward_ms": 1, "backward_ms": 2, "activation_bytes": 4, "parameter_bytes": 0},
    {"name": "aux", "inputs": ["a"], "forward_ms": 1, "backward_ms": 2, "activation_bytes": 4, "parameter_bytes": 0},
    {"name": "b", "inputs": ["a"], "forward_ms": 1, "backward_ms": 2, "activation_bytes": 4, "parameter_bytes": 0}])")));
  CHECK(!model.layers()[0].layer->is_loss());
  CHECK(model.layers()[1].layer->is_loss());
  CHECK(model.main_loss() == 2);
}

TEST_CASE("costs that cannot be rehearsed are refused") {
  Plan plan = PlanOf(CostsText());
  plan.layers.clear();
  CHECK_THROWS_WITH(TimedModel(plan), ContainsSubstring("expected a plan with the costs"));
}

}  // namespace
}  // namespace pd
