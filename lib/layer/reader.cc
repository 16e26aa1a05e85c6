#include "layer/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace pd {
namespace {

std::string Describe(const TensorSpec& spec) {
  return std::string(NameOf(spec.dtype)) + " " + ToString(spec.shape);
}

Init ReadInit(const JsonView& json) {
  json.CheckKeys({"uniform", "normal", "constant"});
  const auto members = json.Members();
  if (members.size() != 1) {
    json.Fail("one of \"uniform\", \"normal\", \"constant\"",
              fmt::format("{} keys", members.size()));
  }
  const auto& [kind, value] = members[0];
  constexpr double kLargest = 1e30;
  if (kind == "uniform") return {Init::Kind::kUniform, value.Number(0, kLargest)};
  if (kind == "normal") return {Init::Kind::kNormal, value.Number(0, kLargest)};
  return {Init::Kind::kConstant, value.Number(-kLargest, kLargest)};
}

}  // namespace

bool IsSane(const Shape& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > kMaxExtent || elements > kMaxElements / extent) return false;
    elements *= extent;
  }
  return shape.size() <= kMaxRank;
}

LayerReader::LayerReader(const JsonView& json, const std::vector<TensorSpec>& inputs)
    : json_(json),
      inputs_(inputs),
      name_(json.At("name").String()),
      type_(json.At("type").String()) {}

void LayerReader::CheckKeys(std::initializer_list<std::string_view> own) const {
  std::vector<std::string_view> allowed = {"name", "type", "inputs"};
  allowed.insert(allowed.end(), own.begin(), own.end());
  json_.CheckKeys(allowed);
}

int64_t LayerReader::Int(std::string_view key, int64_t min, std::optional<int64_t> fallback) const {
  const auto value = fallback ? json_.Find(key) : json_.At(key);
  return value ? value->Int(min, kMaxExtent) : *fallback;
}

double LayerReader::Number(std::string_view key, double min, double max, double fallback) const {
  const auto value = json_.Find(key);
  return value ? value->Number(min, max) : fallback;
}

bool LayerReader::Bool(std::string_view key, bool fallback) const {
  const auto value = json_.Find(key);
  return value ? value->Bool() : fallback;
}

std::array<int64_t, 2> LayerReader::Pair(std::string_view key, int64_t min,
                                         std::optional<std::array<int64_t, 2>> fallback) const {
  const auto value = fallback ? json_.Find(key) : json_.At(key);
  if (!value) return *fallback;
  if (!value->IsArray()) {
    if (!value->IsNumber()) value->Fail("an integer or [h, w]");
    const int64_t both = value->Int(min, kMaxExtent);
    return {both, both};
  }
  const auto items = value->Items();
  if (items.size() != 2) {
    value->Fail("an integer or [h, w]", fmt::format("an array of {}", items.size()));
  }
  return {items[0].Int(min, kMaxExtent), items[1].Int(min, kMaxExtent)};
}

Shape LayerReader::Extents(std::string_view key, bool required) const {
  const auto value = required ? json_.At(key) : json_.Find(key);
  if (!value) return {};
  Shape shape;
  for (const JsonView& item : value->Items()) shape.push_back(item.Int(1, kMaxExtent));
  if (shape.size() > kMaxRank) {
    value->Fail(fmt::format("at most {} extents", kMaxRank), std::to_string(shape.size()));
  }
  return shape;
}

std::string LayerReader::Choice(std::string_view key,
                                std::initializer_list<std::string_view> choices) const {
  const auto value = json_.Find(key);
  if (!value) return std::string(*choices.begin());
  const std::string found = value->String();
  if (std::find(choices.begin(), choices.end(), found) == choices.end()) {
    value->Fail(fmt::format("\"{}\"", fmt::join(choices, "\" or \"")));
  }
  return found;
}

Shape LayerReader::OneADimension(std::string_view key, int64_t min) const {
  const JsonView value = json_.At(key);
  Shape numbers;
  for (const JsonView& item : value.Items()) numbers.push_back(item.Int(min, kMaxExtent));
  const Shape& x = Input(0);
  if (numbers.size() != x.size()) {
    value.Fail(
        fmt::format("{} integers, one a dimension of the input f32 {}", x.size(), ToString(x)),
        std::to_string(numbers.size()));
  }
  return numbers;
}

size_t LayerReader::Axis(std::string_view key) const {
  const Shape& x = Input(0);
  const int64_t axis = Int(key, 0, 0);
  if (axis >= static_cast<int64_t>(x.size())) {
    FailKey(key, fmt::format("a dimension of the input f32 {}, counted from 0", ToString(x)),
            std::to_string(axis));
  }
  return static_cast<size_t>(axis);
}

void LayerReader::RequireInputs(size_t count) const {
  if (inputs_.size() == count) return;
  FailKey("inputs",
          fmt::format("{} input{} for {} \"{}\"", count, count == 1 ? "" : "s", type_, name_),
          std::to_string(inputs_.size()));
}

const Shape& LayerReader::Input(size_t i) const {
  const TensorSpec& spec = inputs_.at(i);
  if (spec.dtype != DType::kF32) FailInput(i, "f32");
  return spec.shape;
}

const Shape& LayerReader::Image(size_t i) const {
  const Shape& shape = Input(i);
  if (shape.size() != 3) FailInput(i, "f32 [C, H, W]");
  return shape;
}

void LayerReader::FailInput(size_t i, const std::string& expected) const {
  const std::string wanted = fmt::format("{} as input of {} \"{}\"", expected, type_, name_);
  const std::string found = Describe(inputs_.at(i));
  const auto names = json_.Find("inputs");
  if (names) names->Items().at(i).Fail(wanted, found);
  json_.Fail(wanted, found);
}

void LayerReader::FailKey(std::string_view key, const std::string& expected,
                          const std::string& found) const {
  json_.Find(key).value_or(json_).Fail(expected, found);
}

TensorSpec LayerReader::Output(Shape shape) const {
  if (!IsSane(shape)) {
    json_.Fail(fmt::format(
                   "an output of {} \"{}\" with at most {} elements a sample, each extent up to {}",
                   type_, name_, kMaxElements, kMaxExtent),
               ToString(shape));
  }
  return {std::move(shape), DType::kF32};
}

std::vector<ParamSpec> LayerReader::Params(std::vector<ParamSpec> params) const {
  std::vector<std::string_view> names;
  for (const ParamSpec& param : params) {
    if (!IsSane(param.shape)) {
      json_.Fail(fmt::format("a {} of {} \"{}\" with at most {} elements", param.name, type_, name_,
                             kMaxElements),
                 ToString(param.shape));
    }
    names.push_back(param.name);
  }
  const auto init = json_.Find("init");
  if (!init) return params;
  init->CheckKeys(names);
  for (ParamSpec& param : params) {
    if (const auto own = init->Find(param.name)) param.init = ReadInit(*own);
  }
  return params;
}

}  // namespace pd
