#include "pipeline/pipelined.h"
#include "support/catch.h"

namespace pd {
namespace {

// Two branches whose layers stand in turn in the model's order, and a tensor, `stem`, that layers
// of both read in turn, so that a stage with one branch is no run of the order.
constexpr const char* kModel = R"({"format":"pipedream.model/1","name":"branches",
  "inputs":[{"name":"image","shape":[2,8,8]},{"name":"label","shape":[],"dtype":"i32"}],
  "layers":[
    {"name":"stem","type":"conv2d","inputs":["image"],"out_channels":4,"kernel":3,"padding":1},
    {"name":"a1","type":"conv2d","inputs":["stem"],"out_channels":4,"kernel":3,"padding":1},
    {"name":"b1","type":"conv2d","inputs":["stem"],"out_channels":4,"kernel":1},
    {"name":"a2","type":"add","inputs":["a1","stem"]},
    {"name":"b2","type":"batch_norm","inputs":["b1"]},
    {"name":"a3","type":"relu","inputs":["a2"]},
    {"name":"b3","type":"concat","inputs":["b2","stem"]},
    {"name":"b4","type":"conv2d","inputs":["b3"],"out_channels":4,"kernel":1},
    {"name":"a4","type":"conv2d","inputs":["a3"],"out_channels":4,"kernel":1},
    {"name":"sum","type":"add","inputs":["a4","b4","stem"]},
    {"name":"pool","type":"max_pool2d","kernel":2},
    {"name":"flat","type":"flatten"},
    {"name":"fc","type":"linear","out_features":4},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})";

using Stages = std::vector<std::vector<std::string>>;

const std::vector<std::string> kA = {"a1", "a2", "a3", "a4"}, kB = {"b1", "b2", "b3", "b4"},
                               kTail = {"sum", "pool", "flat", "fc", "loss"};

std::vector<NamedCase> BranchCases(const std::string& backend) {
  TrainingCase base;
  base.model = kModel;
  base.backend = backend;
  base.segments = {20 * 4 - 1, 5 * 4 + 2};
  std::vector<NamedCase> cases;
  const auto add = [&](const std::string& name, Stages stages, std::vector<int> replicas) {
    TrainingCase c = base;
    c.stages = std::move(stages);
    c.replicas = std::move(replicas);
    cases.push_back({name, c});
  };
  add("stem, a, b, tail", {{"stem"}, kA, kB, kTail}, {1, 1, 1, 1});
  add("stem, b, a, tail", {{"stem"}, kB, kA, kTail}, {1, 1, 1, 1});
  add("stem, a, b, tail on 2-1-2-1", {{"stem"}, kA, kB, kTail}, {2, 1, 2, 1});
  add("stem with b, a, tail", {{"stem", "b1", "b2", "b3", "b4"}, kA, kTail}, {1, 2, 1});
  add("stem with a, b with tail",
      {{"stem", "a1", "a2", "a3", "a4"},
       {"b1", "b2", "b3", "b4", "sum", "pool", "flat", "fc", "loss"}},
      {1, 1});
  add("halves of both branches",
      {{"stem", "a1", "b1"},
       {"b2", "b3", "b4"},
       {"a2", "a3", "a4", "sum", "pool", "flat", "fc", "loss"}},
      {1, 1, 1});
  return cases;
}

TEST_CASE("branches on stages of their own train as the serial run does, bit for bit") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const RandomData data = OracleData();
  for (const NamedCase& named : BranchCases(backend)) {
    INFO(backend << " " << named.name);
    CHECK(Difference(TrainOnThreads(named.c, data), TrainSerially(named.c, data)) == "");
  }
}

TEST_CASE("with one minibatch in flight branches on stages equal the model as one stage") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const RandomData data = OracleData();
  TrainingCase whole = BranchCases(backend)[0].c;
  whole.stages.clear();
  whole.replicas = {1};
  const TrainingResult wanted = TrainSerially(whole, data);
  for (NamedCase named : BranchCases(backend)) {
    INFO(backend << " " << named.name);
    named.c.replicas.assign(named.c.stages.size(), 1);
    named.c.in_flight.assign(named.c.stages.size(), 1);
    CHECK(Difference(TrainOnThreads(named.c, data), wanted) == "");
  }
}

}  // namespace
}  // namespace pd
