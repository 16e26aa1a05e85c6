#include "plan/layer_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;
using Index = std::unordered_map<std::string, size_t>;

std::optional<double> OptionalMs(const JsonView& json, std::string_view key) {
  const auto found = json.Find(key);
  if (!found) return std::nullopt;
  return found->Number(0, kMaxMs);
}

LayerCost ReadLayerCost(const JsonView& json) {
  json.CheckKeys({"name", "inputs", "forward_ms", "backward_ms", "activation_bytes",
                  "parameter_bytes", "stored_parameter_bytes", "update_ms", "stash_bytes",
                  "workspace_bytes", "copy_bytes", "forward_p90_ms", "backward_p90_ms"});
  LayerCost cost;
  cost.name = json.At("name").String();
  for (const JsonView& input : json.At("inputs").Items()) cost.inputs.push_back(input.String());
  cost.forward_ms = json.At("forward_ms").Number(0, kMaxMs);
  cost.backward_ms = json.At("backward_ms").Number(0, kMaxMs);
  cost.activation_bytes = json.At("activation_bytes").Int(0, kMaxBytes);
  cost.parameter_bytes = json.At("parameter_bytes").Int(0, kMaxBytes);
  if (const auto stored = json.Find("stored_parameter_bytes")) {
    cost.stored_parameter_bytes = stored->Int(0, kMaxBytes);
  }
  cost.update_ms = OptionalMs(json, "update_ms");
  if (const auto stash = json.Find("stash_bytes")) cost.stash_bytes = stash->Int(0, kMaxBytes);
  if (const auto workspace = json.Find("workspace_bytes")) {
    cost.workspace_bytes = workspace->Int(0, kMaxBytes);
  }
  if (const auto copy = json.Find("copy_bytes")) cost.copy_bytes = copy->Int(0, kMaxBytes);
  cost.forward_p90_ms = OptionalMs(json, "forward_p90_ms");
  cost.backward_p90_ms = OptionalMs(json, "backward_p90_ms");
  return cost;
}

// Without a model a name that is no layer's is a graph input; a layer that stands later is a
// mistake, and so cycles cannot be written down.
void CheckInputs(const JsonView& json, size_t layer, const Index& index) {
  for (const JsonView& input : json.At("inputs").Items()) {
    const auto found = index.find(input.String());
    if (found == index.end() || found->second < layer) continue;
    input.Fail("the name of a graph input or of an earlier layer",
               found->second == layer ? fmt::format("the layer itself, \"{}\"", input.String())
                                      : fmt::format("\"{}\", which stands later, as layer {}",
                                                    input.String(), found->second));
  }
}

// The layer is the model's: same name, same inputs. Inputs left empty become the model's.
void CheckAgainstModel(const JsonView& json, size_t layer, const Model& model, LayerCost& cost) {
  const Model::Node& node = model.layers()[layer];
  if (cost.name != node.layer->name()) {
    json.At("name").Fail(fmt::format("\"{}\", layer {} of the model", node.layer->name(), layer));
  }
  std::vector<std::string> inputs;
  for (const TensorId input : node.inputs) inputs.push_back(model.tensor_name(input));
  if (cost.inputs.empty()) cost.inputs = inputs;
  if (cost.inputs != inputs) {
    json.At("inputs").Fail(
        fmt::format("the model's inputs of layer \"{}\", [{}]", cost.name, fmt::join(inputs, ", ")),
        fmt::format("[{}]", fmt::join(cost.inputs, ", ")));
  }
}

}  // namespace

std::vector<LayerCost> ReadLayerCosts(const JsonView& json, const Model* model) {
  const std::vector<JsonView> items = json.Items();
  if (items.empty()) json.Fail("one or more layers", "none");
  std::vector<LayerCost> layers;
  Index index;
  for (const JsonView& item : items) {
    layers.push_back(ReadLayerCost(item));
    if (!index.emplace(layers.back().name, layers.size() - 1).second) {
      item.At("name").Fail("a name that no other layer has",
                           fmt::format("\"{}\" again", layers.back().name));
    }
  }
  for (size_t l = 0; l < layers.size(); ++l) {
    CheckInputs(items[l], l, index);
    if (model == nullptr) continue;
    if (l >= model->layers().size()) items[l].Fail("a layer of the model", layers[l].name);
    CheckAgainstModel(items[l], l, *model, layers[l]);
  }
  if (model != nullptr && layers.size() < model->layers().size()) {
    json.Fail(fmt::format("the model's {} layers", model->num_layers()),
              fmt::format("{}, without \"{}\"", layers.size(),
                          model->layers()[layers.size()].layer->name()));
  }
  return layers;
}

Json LayerCostsJson(const std::vector<LayerCost>& layers) {
  Json out = Json::array();
  for (const LayerCost& layer : layers) {
    Json item;
    item["name"] = layer.name;
    item["inputs"] = layer.inputs;
    item["forward_ms"] = layer.forward_ms;
    item["backward_ms"] = layer.backward_ms;
    item["activation_bytes"] = layer.activation_bytes;
    item["parameter_bytes"] = layer.parameter_bytes;
    if (layer.stored_parameter_bytes) {
      item["stored_parameter_bytes"] = *layer.stored_parameter_bytes;
    }
    if (layer.update_ms) item["update_ms"] = *layer.update_ms;
    if (layer.stash_bytes) item["stash_bytes"] = *layer.stash_bytes;
    if (layer.workspace_bytes) item["workspace_bytes"] = *layer.workspace_bytes;
    if (layer.copy_bytes) item["copy_bytes"] = *layer.copy_bytes;
    if (layer.forward_p90_ms) item["forward_p90_ms"] = *layer.forward_p90_ms;
    if (layer.backward_p90_ms) item["backward_p90_ms"] = *layer.backward_p90_ms;
    out.push_back(std::move(item));
  }
  return out;
}

Json Embedded(const JsonView& view) { return view.value(); }

}  // namespace pd
