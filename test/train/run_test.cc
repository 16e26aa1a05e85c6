// A run from its arguments to its last line of metrics, on threads.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "pipeline/session.h"
#include "plan/documents.h"
#include "plan/json_schema.h"
#include "support/catch.h"
#include "train/scratch.h"
#include "train/trainer.h"

namespace pd {
namespace {

std::vector<nlohmann::json> EventsOf(const std::string& path) {
  const SchemaChecker schemas(PD_SOURCE_DIR "/configs/schemas");
  std::vector<nlohmann::json> events;
  std::istringstream text(ReadFile(path));
  for (std::string line; std::getline(text, line);) {
    INFO(line);
    CHECK(schemas.Check("metrics", ParseText(line)) == "");
    events.push_back(nlohmann::json::parse(line));
  }
  return events;
}

std::vector<std::string> FileNames(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("a run writes start, train, eval and end events that fit their schema") {
  const Scratch folder;
  WriteFile(folder / "plan.json", PlanText());
  const std::string target = GENERATE("", "0.000001");
  TrainArguments arguments{.plan = folder / "plan.json",
                           .config = "",
                           .flags = {{"data", "synthetic"},
                                     {"device", "ref"},
                                     {"epochs", "2"},
                                     {"minibatches", "25"},
                                     {"eval_every", "20"},
                                     {"progress", "never"},
                                     {"checkpoint", folder / "checkpoints"},
                                     {"trace", folder / "trace.json"},
                                     {"metrics", folder / "m.jsonl"}}};
  if (!target.empty()) arguments.flags.emplace_back("target_accuracy", target);
  std::vector<int> statuses(4, -1);
  OnThreads(4, [&](Transport& transport) {
    statuses[static_cast<size_t>(transport.rank())] = RunTraining(arguments, transport);
  });
  CHECK(statuses == std::vector<int>(4, 0));
  const std::vector<nlohmann::json> events = EventsOf(folder / "m.jsonl");
  REQUIRE(events.size() >= 4);
  CHECK(events.front()["event"] == "start");
  CHECK(events.front()["devices"][2].is_null());  // the plan leaves rank 2 idle
  CHECK(events.front()["effective_batch"] == nlohmann::json({8, 4}));
  CHECK(events.back()["event"] == "end");
  CHECK(events.back()["reached"] == !target.empty());
  int train = 0, eval = 0;
  constexpr double kRounding = 1e-4;  // of the times in train and eval
  double last = 0, last_train_time = 0;
  for (const nlohmann::json& event : events) {
    train += event["event"] == "train" ? 1 : 0;
    eval += event["event"] == "eval" ? 1 : 0;
    if (event.contains("time_s")) {
      const double time = event["time_s"];
      CHECK(time >= last - kRounding);
      last = time;
    }
    if (event.contains("train_time_s")) {
      const double train_time = event["train_time_s"];
      CHECK(train_time >= last_train_time - kRounding);
      CHECK(train_time <= last + kRounding);
      last_train_time = train_time;
    }
  }
  if (target.empty()) {
    CHECK(train == 6);  // after 10, 20 and 25 minibatches of both epochs
    CHECK(eval == 4);
    CHECK(FileNames(folder / "checkpoints") ==
          std::vector<std::string>{"epoch-000001", "epoch-000002"});
  } else {
    CHECK(eval == 1);
    CHECK(events.back()["time_to_accuracy_s"] == events.back()["train_time_s"]);
  }
  const nlohmann::json trace = nlohmann::json::parse(ReadFile(folder / "trace.json"));
  CHECK(trace.size() > 100);
}

}  // namespace
}  // namespace pd
