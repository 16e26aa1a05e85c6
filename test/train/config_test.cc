#include "train/config.h"

#include "base/file.h"
#include "plan/documents.h"
#include "plan/json_schema.h"
#include "support/catch.h"
#include "support/error_of.h"
#include "train/scratch.h"
#include "train/startup.h"

namespace pd {
namespace {

std::string Refusal(const std::string& text) {
  return ErrorOf([&] { TrainConfig().Merge(ParseText(text)); });
}

std::string FlagRefusal(const std::string& key, const std::string& text) {
  return ErrorOf([&] { TrainConfig().Set(key, text, "--flag"); });
}

TEST_CASE("a config takes over every key of the document") {
  TrainConfig c;
  c.Merge(ParseText(R"({"format": "pipedream.config/1", "data": "synthetic", "epochs": 7,
    "minibatches": 11, "eval_every": 5, "eval_minibatches": 4, "target_accuracy": 0.9, "lr": 0.25, "momentum": 0.5,
    "weight_decay": 0.001, "lr_schedule": {"type": "step", "epochs": 3, "gamma": 0.5},
    "lr_scaling": "linear", "schedule": "1f1b", "device": "ref", "threads": 2, "seed": 9,
    "metrics": "m.jsonl", "log_every": 3, "trace": "t.json", "checkpoint": "c",
    "progress": "never", "stall_timeout": 12.5})"));
  CHECK(c.data == "synthetic");
  CHECK(c.epochs == 7);
  CHECK(c.minibatches == 11);
  CHECK(c.eval_every == 5);
  CHECK(c.eval_minibatches == 4);
  CHECK(c.target_accuracy == 0.9);
  CHECK(c.lr == 0.25);
  CHECK(c.momentum == 0.5);
  CHECK(c.weight_decay == 0.001);
  CHECK(c.lr_schedule.type == "step");
  CHECK(c.lr_schedule.step_epochs == 3);
  CHECK(c.lr_scaling == "linear");
  CHECK(c.schedule == "1f1b");
  CHECK(c.device == "ref");
  CHECK(c.threads == 2);
  CHECK(c.seed == 9);
  CHECK(c.metrics == "m.jsonl");
  CHECK(c.log_every == 3);
  CHECK(c.trace == "t.json");
  CHECK(c.checkpoint == "c");
  CHECK(c.progress == "never");
  CHECK(c.stall_timeout == 12.5);
  CHECK_NOTHROW(c.Validate());
}

TEST_CASE("misspelt keys are refused with the nearest one") {
  CHECK_THAT(Refusal(R"({"epoch": 3})"), ContainsSubstring("\"epochs\""));
  CHECK_THAT(Refusal(R"({"weight-decay": 3})"), ContainsSubstring("weight_decay"));
  CHECK_THAT(Refusal(R"({"format": "pipedream.plan/1"})"), ContainsSubstring("config/1"));
}

TEST_CASE("values of another type or out of range are refused, as keys and as flags") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> bad = {
      {"epochs", {"0", "-1", "2.5", "1e9", "\"3\"", "null", "true"}},
      {"minibatches", {"0", "1.5"}},
      {"eval_every", {"0"}},
      {"eval_minibatches", {"0", "1.5"}},
      {"target_accuracy", {"0", "1.01", "-0.5", "\"0.9\""}},
      {"lr", {"-0.1", "1e7", "\"0.1\"", "1e999"}},
      {"momentum", {"-0.1", "1.1"}},
      {"weight_decay", {"-1", "1e4"}},
      {"threads", {"0", "100000"}},
      {"seed", {"-1", "0.5"}},
      {"log_every", {"0"}},
      {"stall_timeout", {"0", "-3"}},
      {"lr_scaling", {"\"log\"", "1"}},
      {"progress", {"\"sometimes\""}},
      {"data", {"\"\"", "3"}},
      {"lr_schedule", {"\"step\"", R"({"type": "stepp"})", R"({"type": "constant", "gamma": 1})"}},
  };
  const SchemaChecker schemas(PD_SOURCE_DIR "/configs/schemas");
  for (const auto& [key, values] : bad) {
    for (const std::string& value : values) {
      const std::string text = "{\"" + key + "\": " + value + "}";
      INFO(text);
      CHECK_THAT(Refusal(text), !ContainsSubstring("(no error)"));
      if (value == "1e999") continue;
      CHECK_THAT(Refusal(text), ContainsSubstring("/" + key));
      CHECK(schemas.Check("config", ParseText(text)) != "");
    }
  }
  for (const auto& [key, text] :
       std::vector<std::pair<std::string, std::string>>{{"epochs", "0"},
                                                        {"epochs", "3x"},
                                                        {"epochs", "0x10"},
                                                        {"epochs", " 3"},
                                                        {"epochs", ""},
                                                        {"lr", "nan"},
                                                        {"lr", "inf"},
                                                        {"lr", "-1"},
                                                        {"target_accuracy", "1.5"},
                                                        {"threads", "1e3"},
                                                        {"seed", "-1"},
                                                        {"progress", "sometimes"},
                                                        {"stall_timeout", "0"},
                                                        {"data", ""},
                                                        {"lr", "0,1"}}) {
    INFO(key << "=" << text);
    CHECK_THAT(FlagRefusal(key, text), ContainsSubstring("--flag"));
  }
}

TEST_CASE("a run needs data, a check does not") {
  TrainConfig c;
  CHECK_THAT(ErrorOf([&] { c.Validate(); }), ContainsSubstring("--data"));
  CHECK_NOTHROW(c.Validate(/*needs_data=*/false));
}

TEST_CASE("what a config says of itself fits its schema and reads back the same") {
  const SchemaChecker schemas(PD_SOURCE_DIR "/configs/schemas");
  for (const char* text :
       {R"({"data": "synthetic"})",
        R"({"data": "a \"b\" \\ ü", "lr": 0, "momentum": 0, "weight_decay": 0, "seed": 0})",
        R"({"data": "d", "minibatches": 3, "eval_every": 2, "target_accuracy": 0.123456789012345,
            "metrics": "m", "trace": "t", "checkpoint": "c", "schedule": "1f1b"})",
        R"({"data": "d", "lr_schedule": {"type": "step", "epochs": 2.5, "gamma": 0.3}})",
        R"({"data": "d", "lr_schedule": {"type": "polynomial", "power": 2, "end": 1e-5,
                                         "warmup_epochs": 0.5}})",
        R"({"data": "d", "lr_schedule": {"type": "constant", "warmup_epochs": 5}})"}) {
    TrainConfig first;
    first.Merge(ParseText(text));
    const std::string json = first.ToJson();
    INFO(json);
    CHECK(schemas.Check("config", ParseText(json)) == "");
    TrainConfig second;
    second.lr = 77;
    second.seed = 77;
    second.Merge(ParseText(json));
    CHECK(second.ToJson() == json);
    CHECK(second.data == first.data);
    CHECK(second.lr_schedule.warmup_epochs == first.lr_schedule.warmup_epochs);
  }
}

TEST_CASE("flags win over the file, and the file over the defaults") {
  const Scratch folder;
  WriteFile(folder / "plan.json", PlanText());
  WriteFile(folder / "config.json", R"({"data": "elsewhere", "lr": 0.5, "momentum": 0.25})");
  const Agreement got = ReadArguments({.plan = folder / "plan.json",
                                       .config = folder / "config.json",
                                       .flags = {{"lr", "0.125"}, {"data", "synthetic"}}});
  CHECK(got.config.lr == 0.125);
  CHECK(got.config.data == "synthetic");
  CHECK(got.config.momentum == 0.25);
  CHECK(got.config.epochs == TrainConfig().epochs);
}

}  // namespace
}  // namespace pd
