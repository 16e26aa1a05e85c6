#include "plan/timed_model.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;

// As few extents as hold `elements` or a little more.
Json Extents(int64_t elements) {
  constexpr int64_t kLargest = 1 << 24;  // kMaxExtent of lib/layer/reader.h
  if (elements == 0) return Json::array();
  const int64_t rows = (elements + kLargest - 1) / kLargest;
  return {rows, (elements + rows - 1) / rows};
}

int64_t ElementsOf(int64_t bytes, int64_t samples) {
  const int64_t element = samples * static_cast<int64_t>(sizeof(float));
  return (bytes + element - 1) / element;
}

}  // namespace

JsonView TimedModel(const Plan& plan) {
  PD_REQUIRE(!plan.layers.empty(),
             "device timed: expected a plan with the costs of its layers (/layers), found none");
  std::set<std::string> names, read;
  for (const LayerCost& layer : plan.layers) names.insert(layer.name);
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    for (const std::string& input : plan.layers[l].inputs) read.insert(input);
    if (plan.layers[l].inputs.empty() && l > 0) read.insert(plan.layers[l - 1].name);
  }
  // Layers may be named like these: names get underscores until they are free.
  const auto free_name = [&](std::string name) {
    while (names.count(name) > 0) name += '_';
    return name;
  };
  const std::string sample = free_name("sample"), label = free_name("label");
  Json layers = Json::array();
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    const LayerCost& cost = plan.layers[l];
    const bool is_loss = read.count(cost.name) == 0;
    Json inputs = Json::array();
    std::set<std::string> seen;
    const auto add = [&](const std::string& name) {
      if (seen.insert(name).second) inputs.push_back(name);
    };
    for (const std::string& input : cost.inputs) {
      if (names.count(input) > 0) add(input);
    }
    if (inputs.empty() && !cost.inputs.empty()) add(sample);
    if (cost.inputs.empty()) add(l == 0 ? sample : plan.layers[l - 1].name);
    if (is_loss) inputs.push_back(label);
    Json layer = {{"name", cost.name}, {"type", "timed"}, {"inputs", inputs}};
    if (!is_loss) {
      layer["output"] =
          Extents(std::max<int64_t>(1, ElementsOf(cost.activation_bytes, plan.batch_size)));
    }
    layer["parameters"] = Extents(ElementsOf(cost.weight_bytes(), 1));
    layer["forward_ms"] = cost.forward_ms;
    layer["backward_ms"] = cost.backward_ms;
    layer["update_ms"] = cost.update_ms.value_or(0);
    layer["loss"] = is_loss;
    layers.push_back(std::move(layer));
  }
  const Json model = {{"format", "pipedream.model/1"},
                      {"name", "times of a profile"},
                      {"inputs",
                       {{{"name", sample}, {"shape", {1}}},
                        {{"name", label}, {"shape", Json::array()}, {"dtype", "i32"}}}},
                      {"layers", layers}};
  return JsonView::Parse(model.dump(-1, ' ', false, Json::error_handler_t::replace),
                         "the plan's costs as a model");
}

}  // namespace pd
