#include "train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace pd {
namespace {

using Member = std::variant<int64_t TrainConfig::*, double TrainConfig::*,
                            std::string TrainConfig::*, bool TrainConfig::*>;

// A key of config/1 that is a plain value, with its range.
struct Field {
  std::string_view key;
  Member member;
  double min = 0, max = 0;
  std::vector<std::string_view> words = {};  // All that a text may be; empty: anything.
};

constexpr double kMany = 1e15;

const std::vector<Field>& Fields() {
  static const std::vector<Field> fields = {
      {"data", &TrainConfig::data},
      {"epochs", &TrainConfig::epochs, 1, 1e6},
      {"minibatches", &TrainConfig::minibatches, 1, kMany},
      {"eval_every", &TrainConfig::eval_every, 1, kMany},
      {"eval_minibatches", &TrainConfig::eval_minibatches, 1, kMany},
      {"target_accuracy", &TrainConfig::target_accuracy, 1e-9, 1},
      {"target_perplexity", &TrainConfig::target_perplexity, 1, 1e9},
      {"lr", &TrainConfig::lr, 0, 1e6},
      {"momentum", &TrainConfig::momentum, 0, 1},
      {"weight_decay", &TrainConfig::weight_decay, 0, 1e3},
      {"lr_scaling", &TrainConfig::lr_scaling, 0, 0, {"none", "linear"}},
      {"schedule", &TrainConfig::schedule},
      {"device", &TrainConfig::device},
      {"tf32", &TrainConfig::tf32},
      {"threads", &TrainConfig::threads, 1, 4096},
      {"seed", &TrainConfig::seed, 0, kMany},
      {"metrics", &TrainConfig::metrics},
      {"log_every", &TrainConfig::log_every, 1, kMany},
      {"trace", &TrainConfig::trace},
      {"checkpoint", &TrainConfig::checkpoint},
      {"progress", &TrainConfig::progress, 0, 0, {"auto", "always", "never"}},
      {"stall_timeout", &TrainConfig::stall_timeout, 0.1, 1e7},
  };
  return fields;
}

bool Fits(const Field& field, std::string_view text) {
  return field.words.empty() ||
         std::find(field.words.begin(), field.words.end(), text) != field.words.end();
}

std::string Expected(const Field& field) {
  return fmt::format("one of {}", fmt::join(field.words, ", "));
}

}  // namespace

void TrainConfig::Merge(const JsonView& json) {
  std::vector<std::string_view> keys = {"format", "lr_schedule", "data_options"};
  for (const Field& field : Fields()) keys.push_back(field.key);
  json.CheckKeys(keys);
  if (json.Find("format")) CheckFormat(json, "config");
  if (const auto view = json.Find("data_options")) {
    if (!view->IsObject()) view->Fail("an object");
    data_options = *view;
  }
  if (const auto view = json.Find("lr_schedule")) lr_schedule = LrSchedule::Read(*view);
  for (const Field& field : Fields()) {
    const auto view = json.Find(field.key);
    if (!view) continue;
    if (const auto* i = std::get_if<int64_t TrainConfig::*>(&field.member)) {
      this->*(*i) = view->Int(static_cast<int64_t>(field.min), static_cast<int64_t>(field.max));
    } else if (const auto* d = std::get_if<double TrainConfig::*>(&field.member)) {
      this->*(*d) = view->Number(field.min, field.max);
    } else if (const auto* s = std::get_if<std::string TrainConfig::*>(&field.member)) {
      this->*(*s) = view->String();
      if (!Fits(field, this->*(*s))) view->Fail(Expected(field));
    } else if (const auto* b = std::get_if<bool TrainConfig::*>(&field.member)) {
      this->*(*b) = view->Bool();
    }
  }
}

void TrainConfig::Set(std::string_view key, std::string_view text, std::string_view flag) {
  for (const Field& field : Fields()) {
    if (field.key != key) continue;
    if (const auto* i = std::get_if<int64_t TrainConfig::*>(&field.member)) {
      this->*(*i) =
          ParseInt(text, flag, static_cast<int64_t>(field.min), static_cast<int64_t>(field.max));
    } else if (const auto* d = std::get_if<double TrainConfig::*>(&field.member)) {
      this->*(*d) = ParseNumber(text, flag, field.min, field.max);
    } else if (const auto* s = std::get_if<std::string TrainConfig::*>(&field.member)) {
      PD_REQUIRE(!text.empty(), "{}: expected a text, found nothing", flag);
      PD_REQUIRE(Fits(field, text), "{}: expected {}, found \"{}\"", flag, Expected(field), text);
      this->*(*s) = text;
    } else if (const auto* b = std::get_if<bool TrainConfig::*>(&field.member)) {
      PD_REQUIRE(text == "true" || text == "false", "{}: expected true or false, found \"{}\"",
                 flag, text);
      this->*(*b) = text == "true";
    }
    return;
  }
  Throw(ErrorCode::kInternal, "no config key {}", key);
}

void TrainConfig::Validate(bool needs_data) const {
  PD_REQUIRE(trace != "-", "--trace: expected a file, found \"-\"");
  PD_REQUIRE(!needs_data || !data.empty(),
             "--data: expected a directory or \"synthetic\", found nothing");
}

std::string TrainConfig::ToJson() const {
  nlohmann::ordered_json json;
  json["format"] = "pipedream.config/1";
  for (const Field& field : Fields()) {
    const std::string key(field.key);
    if (const auto* i = std::get_if<int64_t TrainConfig::*>(&field.member)) {
      if (this->*(*i) != 0 || field.min <= 0) json[key] = this->*(*i);
    } else if (const auto* d = std::get_if<double TrainConfig::*>(&field.member)) {
      if (this->*(*d) != 0 || field.min <= 0) json[key] = this->*(*d);
    } else if (const auto* s = std::get_if<std::string TrainConfig::*>(&field.member)) {
      if (!(this->*(*s)).empty()) json[key] = this->*(*s);
    } else if (const auto* b = std::get_if<bool TrainConfig::*>(&field.member)) {
      json[key] = this->*(*b);
    }
  }
  if (!data_options.value().empty()) json["data_options"] = data_options.value();
  nlohmann::ordered_json rule;
  rule["type"] = lr_schedule.type;
  if (lr_schedule.type == "step") {
    rule["epochs"] = lr_schedule.step_epochs;
    rule["gamma"] = lr_schedule.gamma;
  } else if (lr_schedule.type == "polynomial") {
    rule["power"] = lr_schedule.power;
    rule["end"] = lr_schedule.end;
  }
  if (lr_schedule.warmup_epochs > 0) rule["warmup_epochs"] = lr_schedule.warmup_epochs;
  json["lr_schedule"] = rule;
  return WriteJson(json);
}

}  // namespace pd
