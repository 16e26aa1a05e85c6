#include "plan/plan.h"

#include "base/error.h"
#include "plan/documents.h"
#include "support/catch.h"

namespace pd {
namespace {

void Refused(const std::string& from, const std::string& to, const std::string& message) {
  CAPTURE(from, to);
  CHECK_THROWS_WITH(ReadPlan(ParseText(With(PlanText(), from, to))), ContainsSubstring(message));
}

TEST_CASE("a plan is read, written and read back to the same bytes") {
  const Plan plan = ReadPlan(ParseText(PlanText()));
  CHECK(plan.stages.size() == 2);
  CHECK(plan.world_size() == 4);
  const std::string written = WritePlan(plan);
  CHECK(written.find("\"format\": \"pipedream.plan/1\"") < 10);
  CHECK(WritePlan(ReadPlan(ParseText(written))) == written);
}

TEST_CASE("without a cluster the world is as large as the highest rank needs") {
  std::string text = With(PlanText(), R"("cluster": )" + ClusterText() + ",", "");
  CHECK(ReadPlan(ParseText(text)).world_size() == 4);
  text = With(text, "[3]", "[7]");
  CHECK_THROWS_WITH(ReadPlan(ParseText(text)),
                    ContainsSubstring("/predicted/memory_bytes: expected 8"));
}

TEST_CASE("a stage has by default as many minibatches in flight as workers behind it need") {
  Plan plan;
  plan.stages.resize(3);
  plan.stages[0].workers = {0, 1};
  plan.stages[1].workers = {2, 3, 4};
  plan.stages[2].workers = {5};
  CHECK(plan.in_flight(0) == 3);
  CHECK(plan.in_flight(1) == 2);
  CHECK(plan.in_flight(2) == 1);
  plan.stages[0].in_flight = 6;
  CHECK(plan.in_flight(0) == 6);
}

TEST_CASE("every layer stands in exactly one stage, in the model's order") {
  Refused(R"(["sum", "loss"])", R"(["fc1", "sum", "loss"])",
          "test.json: /stages/1/layers/0: layer \"fc1\" stands in stage 0 and in stage 1");
  Refused(R"(["sum", "loss"])", R"(["sum", "loss", "sum"])",
          "layer \"sum\" stands in stage 1 and there again");
  Refused(R"(["sum", "loss"])", R"(["loss"])", "layer \"sum\" stands in no stage");
  Refused(R"(["sum", "loss"])", R"(["sum", "los"])", "did you mean \"loss\"?");
  Refused(R"(["sum", "loss"])", "[]", "/stages/1/layers: expected one or more layers");
  Refused(R"(["flat", "fc1"])", R"(["fc1", "flat"])", "the model's order");
}

TEST_CASE("stages stand in topological order") {
  const std::string swapped = With(With(PlanText(), R"(["flat", "fc1"])", R"(["flat", "sum"])"),
                                   R"(["sum", "loss"])", R"(["fc1", "loss"])");
  CHECK_THROWS_WITH(
      ReadPlan(ParseText(swapped)),
      ContainsSubstring("/stages/0: expected what layer \"sum\" reads in this stage or before, "
                        "found \"fc1\" in stage 1"));
}

TEST_CASE("workers are distinct and the cluster's") {
  Refused("[0, 1]", "[0, 0]", "/stages/0/workers/1: worker 0 stands in stage 0 and there again");
  Refused("[0, 1]", "[0, 3]", "worker 3 stands in stage 0 and in stage 1");
  Refused("[0, 1]", "[0, 4]", "/stages/0/workers/1: expected a worker of the cluster, 0 to 3");
  Refused("[0, 1]", "[0, -1]", "/stages/0/workers/1");
  Refused("[0, 1]", "[0, 1.5]", "/stages/0/workers/1");
  Refused("[0, 1]", "[]", "/stages/0/workers: expected one or more workers");
}

TEST_CASE("a depth that would make two stages wait for ever is refused") {
  Refused("\"in_flight\": 3", "\"in_flight\": 0", "/stages/0/in_flight");
  Refused("[3]}", "[3], \"in_flight\": 6}", "/stages/1: expected in_flight of at most 5");
  CHECK_NOTHROW(ReadPlan(ParseText(With(PlanText(), "[3]}", "[3], \"in_flight\": 5}"))));
}

TEST_CASE("plans that make no sense are refused with their place") {
  Refused("\"batch_size\": 4", "\"batch_size\": -4", "/batch_size");
  Refused("\"schedule\": \"1f1b\"", "\"schedule\": 1", "/schedule: expected a string");
  Refused("\"schedule\"", "\"shedule\"", "did you mean \"schedule\"?");
  Refused("\"in_flight\"", "\"inflight\"", "did you mean \"in_flight\"?");
  Refused("[9, 9, 0, 5]", "[9, 9, 5]", "/predicted/memory_bytes: expected 4 numbers");
  Refused("\"samples_per_s\": 1600", "\"samples_per_s\": -1", "/predicted/samples_per_s");
  Refused("\"out_features\": 4", "\"out_features\": 5", "/model/layers/2");
  Refused("\"forward_ms\": 1.5", "\"forward_ms\": -1.5", "/layers/1/forward_ms");
  Refused("cluster/1", "cluster/2", "/cluster/format");
  CHECK_THROWS_WITH(
      ReadPlan(ParseText(R"({"format": "pipedream.plan/1", "batch_size": 4, "stages": []})")),
      ContainsSubstring("/stages: expected one or more stages"));
  CHECK_THROWS_WITH(
      ReadPlan(ParseText(
          R"({"format": "pipedream.plan/1", "batch_size": 4, "stages": [{"layers": ["a"], "workers": [0]}]})")),
      ContainsSubstring("expected a key \"model\", or \"layers\" with costs, found neither"));
}

TEST_CASE("what a run is compared with may be left out, and else has one value a worker") {
  const std::string memory = R"("memory_bytes": [9, 9, 0, 5])";
  const std::string more = memory +
                           R"(, "compute_ms": [1.5, 1.5, 0, 2], "idle_share": [0.4, 0.4, 1, 0.2],
      "bytes_sent": [10, 10, 0, 7], "bytes_received": [7, 7, 0, 10])";
  const Plan plan = ReadPlan(ParseText(With(PlanText(), memory, more)));
  CHECK(plan.predicted->compute_ms == std::vector<double>{1.5, 1.5, 0, 2});
  CHECK(plan.predicted->bytes_received == std::vector<int64_t>{7, 7, 0, 10});
  CHECK(WritePlan(ReadPlan(ParseText(WritePlan(plan)))) == WritePlan(plan));
  CHECK(ReadPlan(ParseText(PlanText())).predicted->idle_share.empty());
  Refused(memory, memory + R"(, "compute_ms": [1, 2])",
          "/predicted/compute_ms: expected 4 numbers, one a worker, found 2");
  Refused(memory, memory + R"(, "idle_share": [0, 0, 0, 1.5])", "/predicted/idle_share/3");
  Refused(memory, memory + R"(, "bytes_sent": [0, 0, 0, 0.5])", "/predicted/bytes_sent/3");
}

TEST_CASE("a stage recomputes if it says so") {
  const std::string text =
      With(PlanText(), R"("in_flight": 3)", R"("in_flight": 3, "recompute": true)");
  const Plan plan = ReadPlan(ParseText(text));
  CHECK(plan.stages[0].recompute);
  CHECK_FALSE(plan.stages[1].recompute);
  CHECK(ReadPlan(ParseText(WritePlan(plan))).stages[0].recompute);
  Refused(R"("in_flight": 3)", R"("recompute": 1)", "/stages/0/recompute");
}

TEST_CASE("a plan by hand needs only its model, batch size and stages") {
  const std::string text =
      R"({"format": "pipedream.plan/1", "batch_size": 4, "model": )" + ModelText() +
      R"(, "stages": [{"layers": ["flat", "fc1", "sum", "loss"], "workers": [0]}]})";
  const Plan plan = ReadPlan(ParseText(text));
  CHECK(plan.schedule == "1f1b");
  CHECK(plan.layers.empty());
  CHECK(plan.world_size() == 1);
  CHECK(WritePlan(ReadPlan(ParseText(WritePlan(plan)))) == WritePlan(plan));
}

TEST_CASE("a plan without model is checked against its costs") {
  const std::string text = With(PlanText(), R"(, "model": )" + ModelText(), "");
  CHECK_FALSE(ReadPlan(ParseText(text)).model.has_value());
  CHECK_THROWS_WITH(ReadPlan(ParseText(With(text, R"(["sum", "loss"])", R"(["loss"])"))),
                    ContainsSubstring("stands in no stage"));
}

TEST_CASE("predictions of workers come together or not at all") {
  const std::string memory = R"("memory_bytes": [9, 9, 0, 5])";
  Refused(memory, memory + R"(, "compute_ms": [1, 1, 0, 1])",
          "test.json: /predicted: expected all of compute_ms, idle_share, bytes_sent, "
          "bytes_received, or none, found no idle_share");
  Refused(memory, memory + R"(, "bytes_sent": [1, 1, 0, 1])", "found only bytes_sent");
}

}  // namespace
}  // namespace pd
