// Residual and inception graphs cut everywhere.
#include <algorithm>

#include "model/model.h"
#include "pipeline/pipelined.h"
#include "support/catch.h"

namespace pd {
namespace {

using Stages = std::vector<std::vector<std::string>>;

// Three residual blocks: a shortcut as it is, one with a projection and a stride, and one round
// both of them, which any cut but the outermost leaves crossing a border or two.
constexpr const char* kResidual = R"({"format":"pipedream.model/1","name":"residual",
  "inputs":[{"name":"image","shape":[2,8,8]},{"name":"label","shape":[],"dtype":"i32"}],
  "layers":[
    {"name":"conv1","type":"conv2d","inputs":["image"],"out_channels":4,"kernel":3,"padding":1,"bias":false},
    {"name":"bn1","type":"batch_norm"},
    {"name":"relu1","type":"relu"},
    {"name":"a.conv1","type":"conv2d","out_channels":4,"kernel":3,"padding":1,"bias":false},
    {"name":"a.bn1","type":"batch_norm"},
    {"name":"a.relu1","type":"relu"},
    {"name":"a.conv2","type":"conv2d","out_channels":4,"kernel":3,"padding":1,"bias":false},
    {"name":"a.bn2","type":"batch_norm"},
    {"name":"a.add","type":"add","inputs":["a.bn2","relu1"]},
    {"name":"a.relu","type":"relu"},
    {"name":"b.conv1","type":"conv2d","out_channels":6,"kernel":3,"stride":2,"padding":1,"bias":false},
    {"name":"b.bn1","type":"batch_norm"},
    {"name":"b.project","type":"conv2d","inputs":["a.relu"],"out_channels":6,"kernel":1,"stride":2,"bias":false},
    {"name":"b.project_bn","type":"batch_norm"},
    {"name":"b.add","type":"add","inputs":["b.bn1","b.project_bn"]},
    {"name":"b.relu","type":"relu"},
    {"name":"around","type":"max_pool2d","inputs":["relu1"],"kernel":1,"stride":2},
    {"name":"all","type":"concat","inputs":["b.relu","around"]},
    {"name":"pool","type":"global_avg_pool2d"},
    {"name":"flat","type":"flatten"},
    {"name":"fc","type":"linear","out_features":4},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})";

// An inception block of four branches, an auxiliary head after it, and a block that joins two.
constexpr const char* kInception = R"({"format":"pipedream.model/1","name":"inception",
  "inputs":[{"name":"image","shape":[2,8,8]},{"name":"label","shape":[],"dtype":"i32"}],
  "layers":[
    {"name":"stem","type":"conv2d","inputs":["image"],"out_channels":4,"kernel":3,"padding":1},
    {"name":"a1","type":"conv2d","inputs":["stem"],"out_channels":3,"kernel":1},
    {"name":"b1","type":"conv2d","inputs":["stem"],"out_channels":2,"kernel":1},
    {"name":"b2","type":"conv2d","inputs":["b1"],"out_channels":3,"kernel":[1,3],"padding":[0,1]},
    {"name":"c1","type":"conv2d","inputs":["stem"],"out_channels":2,"kernel":1},
    {"name":"c2","type":"conv2d","inputs":["c1"],"out_channels":2,"kernel":[3,1],"padding":[1,0]},
    {"name":"c3","type":"relu","inputs":["c2"]},
    {"name":"d1","type":"avg_pool2d","inputs":["stem"],"kernel":3,"stride":1,"padding":1},
    {"name":"d2","type":"conv2d","inputs":["d1"],"out_channels":2,"kernel":1},
    {"name":"mixed","type":"concat","inputs":["a1","b2","c3","d2"]},
    {"name":"aux_pool","type":"avg_pool2d","kernel":4},
    {"name":"aux_flat","type":"flatten"},
    {"name":"aux_fc","type":"linear","out_features":4},
    {"name":"aux_loss","type":"softmax_cross_entropy","inputs":["aux_fc","label"],"weight":0.4},
    {"name":"e1","type":"conv2d","inputs":["mixed"],"out_channels":4,"kernel":3,"stride":2},
    {"name":"e2","type":"max_pool2d","inputs":["mixed"],"kernel":3,"stride":2},
    {"name":"joined","type":"concat","inputs":["e1","e2"]},
    {"name":"pool","type":"global_avg_pool2d"},
    {"name":"flat","type":"flatten"},
    {"name":"fc","type":"linear","out_features":4},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})";

std::vector<std::string> LayersOf(const char* text) {
  std::vector<std::string> names;
  const Model model = Model::Parse(JsonView::Parse(text, "model"));
  for (const Model::Node& node : model.layers()) names.push_back(node.layer->name());
  return names;
}

// The layers in a row, cut before the layers at `first`.
Stages CutAt(const std::vector<std::string>& layers, const std::vector<size_t>& first) {
  Stages stages(1);
  for (size_t l = 0; l < layers.size(); ++l) {
    if (std::find(first.begin(), first.end(), l) != first.end()) stages.emplace_back();
    stages.back().push_back(layers[l]);
  }
  return stages;
}

TrainingCase Case(const char* model, const std::string& backend, Stages stages = {}) {
  TrainingCase c;
  c.model = model;
  c.backend = backend;
  c.replicas.assign(std::max<size_t>(stages.size(), 1), 1);
  c.stages = std::move(stages);
  c.segments = {2 * 4, 4 + 1};
  return c;
}

// One minibatch in flight: nothing is stale, so the cut must not show.
void CheckLikeOneStage(const char* model, const std::string& backend,
                       const std::vector<Stages>& cuts) {
  const RandomData data = OracleData();
  const TrainingResult wanted = TrainSerially(Case(model, backend), data);
  for (const Stages& stages : cuts) {
    TrainingCase c = Case(model, backend, stages);
    c.in_flight.assign(stages.size(), 1);
    INFO(backend << ", " << stages.size() << " stages, cut before " << stages[1].front() << " and "
                 << stages.back().front());
    REQUIRE(Difference(TrainOnThreads(c, data), wanted) == "");
  }
}

std::vector<Stages> CutsInTwo(const char* model) {
  const std::vector<std::string> layers = LayersOf(model);
  std::vector<Stages> cuts;
  for (size_t l = 1; l < layers.size(); ++l) cuts.push_back(CutAt(layers, {l}));
  return cuts;
}

std::vector<Stages> CutsInThree(const char* model) {
  const std::vector<std::string> layers = LayersOf(model);
  std::vector<Stages> cuts;
  for (size_t l = 1; l < layers.size(); ++l) {
    for (size_t m = l + 1; m < layers.size(); ++m) cuts.push_back(CutAt(layers, {l, m}));
  }
  return cuts;
}

const std::vector<std::string> kTail = {"e1", "e2", "joined", "pool", "flat", "fc", "loss"},
                               kHead = {"aux_pool", "aux_flat", "aux_fc", "aux_loss"};

std::vector<std::string> Join(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Stages that are no runs of the layers' order.
std::vector<Stages> InceptionByBranches() {
  return {
      // Each branch on a stage of its own, and the auxiliary head with the block or alone.
      {{"stem"},
       {"a1"},
       {"b1", "b2"},
       {"c1", "c2", "c3"},
       Join({"d1", "d2", "mixed"}, kHead),
       kTail},
      {{"stem", "c1", "c2", "c3"}, {"a1", "b1", "b2", "d1", "d2", "mixed"}, kHead, kTail},
      // The auxiliary head after the trunk's stage, and beside the main head.
      {{"stem", "a1", "b1", "b2", "c1", "c2", "c3", "d1", "d2", "mixed", "e1", "e2"},
       Join(kHead, {"joined", "pool", "flat", "fc", "loss"})},
      // Halves of branches, and the two layers that read `mixed` apart.
      {{"stem", "b1", "c1", "d1"},
       Join({"a1", "b2", "c2", "c3", "d2", "mixed", "e2"}, kHead),
       {"e1", "joined", "pool", "flat", "fc", "loss"}},
  };
}

TEST_CASE("a residual network cut in two or three anywhere trains as one stage, bit for bit") {
  CheckLikeOneStage(kResidual, "ref", CutsInThree(kResidual));
  for (const std::string& backend : TrainingBackends()) {
    CheckLikeOneStage(kResidual, backend, CutsInTwo(kResidual));
  }
}

TEST_CASE("an inception network cut in two or three anywhere trains as one stage, bit for bit") {
  CheckLikeOneStage(kInception, "ref", CutsInThree(kInception));
  for (const std::string& backend : TrainingBackends()) {
    CheckLikeOneStage(kInception, backend, CutsInTwo(kInception));
    CheckLikeOneStage(kInception, backend, InceptionByBranches());
  }
}

TEST_CASE("residual and inception stages with minibatches in flight train as the serial run does") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const RandomData data = OracleData();
  const auto check = [&](const char* model, const Stages& stages, std::vector<int> replicas) {
    TrainingCase c = Case(model, backend, stages);
    c.replicas = std::move(replicas);
    c.segments = {10 * 4 - 1, 3 * 4 + 2};
    INFO(backend << ", cut before " << stages[1].front());
    CHECK(Difference(TrainOnThreads(c, data), TrainSerially(c, data)) == "");
  };
  for (const Stages& stages : CutsInTwo(kResidual)) check(kResidual, stages, {1, 1});
  for (const Stages& stages : CutsInTwo(kInception)) check(kInception, stages, {1, 1});
  check(kResidual, CutAt(LayersOf(kResidual), {5, 13}), {2, 1, 3});
  check(kInception, CutAt(LayersOf(kInception), {4, 12}), {2, 3, 1});
  check(kInception, InceptionByBranches()[0], {1, 2, 1, 1, 1, 2});
}

TEST_CASE("an auxiliary loss adds its weighted gradient, and its head learns") {
  const RandomData data = OracleData();
  const TrainingResult with = TrainSerially(Case(kInception, "ref"), data);
  std::string text = kInception;
  text.replace(text.find("0.4"), 3, "0.0");
  const TrainingResult without = TrainSerially(Case(text.c_str(), "ref"), data);
  CHECK(with.at("stem.weight") != without.at("stem.weight"));
  CHECK(with.at("aux_fc.weight") != without.at("aux_fc.weight"));
}

}  // namespace
}  // namespace pd
