// Every shipped file, and what the writers write, against the schemas in configs/schemas; and the
// readers against the schemas: what one refuses for its form, the other refuses too.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "model/model.h"
#include "plan/documents.h"
#include "plan/json_schema.h"
#include "plan/plan.h"
#include "support/catch.h"

namespace pd {
namespace {

const std::string kSource = PD_SOURCE_DIR;

SchemaChecker Checker() { return SchemaChecker(kSource + "/configs/schemas"); }

std::vector<std::string> JsonFiles(const std::string& folder) {
  std::vector<std::string> files;
  if (!std::filesystem::is_directory(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

JsonView ParseFile(const std::string& path) { return JsonView::Parse(ReadFile(path), path); }

TEST_CASE("every shipped model fits its schema and its reader") {
  const auto files = JsonFiles(kSource + "/models");
  CHECK_FALSE(files.empty());
  for (const std::string& file : files) {
    CAPTURE(file);
    CHECK(Checker().Check("model", ParseFile(file)) == "");
    CHECK_NOTHROW(Model::Parse(ParseFile(file)));
  }
}

TEST_CASE("every shipped cluster fits its schema and its reader") {
  const auto files = JsonFiles(kSource + "/configs/clusters");
  CHECK_FALSE(files.empty());
  for (const std::string& file : files) {
    CAPTURE(file);
    CHECK(Checker().Check("cluster", ParseFile(file)) == "");
    CHECK_NOTHROW(ReadCluster(ParseFile(file)));
  }
}

TEST_CASE("every shipped training config fits its schema") {
  for (const std::string& file : JsonFiles(kSource + "/configs/training")) {
    CAPTURE(file);
    CHECK(Checker().Check("config", ParseFile(file)) == "");
  }
}

TEST_CASE("written profiles, clusters and plans fit their schemas") {
  const auto check = [](const std::string& kind, const std::string& text) {
    CHECK(Checker().Check(kind, ParseText(text)) == "");
  };
  check("profile", WriteProfile(ReadProfile(ParseText(ProfileText()))));
  check("cluster", WriteCluster(ReadCluster(ParseText(ClusterText()))));
  check("plan", WritePlan(ReadPlan(ParseText(PlanText()))));
  Plan full = ReadPlan(ParseText(PlanText()));
  full.stages[0].recompute = true;
  full.predicted->compute_ms = {1.5, 1.5, 0, 2};
  full.predicted->idle_share = {0.4, 0.4, 1, 0.2};
  full.predicted->bytes_sent = full.predicted->bytes_received = {10, 10, 0, 7};
  check("plan", WritePlan(full));
  Plan bare = ReadPlan(ParseText(PlanText()));
  bare.predicted.reset();
  bare.cluster.reset();
  bare.layers.clear();
  bare.command.clear();
  check("plan", WritePlan(bare));
}

TEST_CASE("metrics lines and configs as design words them fit their schemas") {
  const auto check = [](const std::string& kind, const std::string& text) {
    CHECK(Checker().Check(kind, ParseText(text)) == "");
  };
  check(
      "config",
      R"({"lr": 0.05, "momentum": 0.9, "lr_schedule": {"type": "step", "epochs": 2, "gamma": 0.1}})");
  check(
      "metrics",
      R"({"event": "train", "epoch": 1, "minibatch": 10, "loss": 2.1, "samples_per_s": 900, "time_s": 0.7})");
  check(
      "metrics",
      R"({"event": "train", "epoch": 1, "minibatch": 10, "loss": null, "samples_per_s": 900, "time_s": 0.7})");
  check(
      "metrics",
      R"({"event": "eval", "epoch": 1, "minibatch": 938, "loss": 0.4, "accuracy": 0.85, "time_s": 9, "train_time_s": 8})");
  check(
      "metrics",
      R"({"event": "eval", "epoch": 1, "minibatch": 9, "loss": 2.5, "accuracy": 0.4, "top5_accuracy": 0.7, "perplexity": 12.2, "time_s": 9, "train_time_s": 8})");
}

TEST_CASE("what the schemas refuse, the readers refuse, too") {
  struct Case {
    std::string kind, text, from, to;
  };
  const std::vector<Case> cases = {
      {"model", ModelText(), "\"out_features\": 4", "\"out_features\": 0"},
      {"model", ModelText(), "\"out_features\": 4", "\"out_features\": 4, \"biass\": true"},
      {"model", ModelText(), "\"type\": \"add\"", "\"type\": \"plus\""},
      {"model", ModelText(), ", \"name\": \"tiny\"", ""},
      {"profile", ProfileText(), "\"forward_ms\": 1.5", "\"forward_ms\": -1"},
      {"profile", ProfileText(), "\"parameter_bytes\": 80", "\"parameter_bytes\": 8.5"},
      {"profile", ProfileText(), "\"parameter_bytes\": 80", "\"parameters\": 80"},
      {"profile", ProfileText(), "\"batch_size\": 4", "\"batch_size\": 0"},
      {"profile", ProfileText(), "linear", "lineal"},
      {"cluster", ClusterText(), "1.25e8", "0"},
      {"cluster", ClusterText(), "\"workers\": 4", "\"workers\": \"4\""},
      {"plan", PlanText(), "[3]}", "[]}"},
      {"plan", PlanText(), "\"in_flight\": 3", "\"in_flight\": 0"},
      {"plan", PlanText(), "plan/1", "plan/2"},
      {"plan", PlanText(), "\"predicted\"", "\"prediction\""},
      {"plan", PlanText(), "\"forward_ms\": 1.5", "\"forward_ms\": -1"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.kind, c.from, c.to);
    const JsonView bad = ParseText(With(c.text, c.from, c.to));
    CHECK(Checker().Check(c.kind, ParseText(c.text)) == "");
    CHECK(Checker().Check(c.kind, bad) != "");
    if (c.kind == "model") CHECK_THROWS_AS(Model::Parse(bad), Error);
    if (c.kind == "profile") CHECK_THROWS_AS(ReadProfile(bad), Error);
    if (c.kind == "cluster") CHECK_THROWS_AS(ReadCluster(bad), Error);
    if (c.kind == "plan") CHECK_THROWS_AS(ReadPlan(bad), Error);
  }
}

}  // namespace
}  // namespace pd
