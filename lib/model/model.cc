// From a model/1 document to a checked graph. One pass reads inputs and layers in the document's
// order, which must be a topological one, so that each layer finds the shapes of its inputs known
// and no cycle can be written down. What needs the whole graph (who reads what, where gradients
// flow) comes after.
#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "layer/reader.h"

namespace pd {
namespace {

using NameTable = std::unordered_map<std::string, TensorId>;

// Reads a name that is new in the one name space of inputs and layers, and enters it.
std::string NewName(const JsonView& json, TensorId tensor, NameTable& names) {
  const JsonView name = json.At("name");
  if (!names.emplace(name.String(), tensor).second) {
    name.Fail("a name that no other input or layer has",
              fmt::format("\"{}\" again", name.String()));
  }
  return name.String();
}

TensorSpec ReadSpec(const JsonView& json) {
  const JsonView shape = json.At("shape");
  TensorSpec spec;
  for (const JsonView& extent : shape.Items()) spec.shape.push_back(extent.Int(1, kMaxExtent));
  if (!IsSane(spec.shape)) {
    shape.Fail(fmt::format("at most {} dimensions and {} elements", kMaxRank, kMaxElements),
               spec.shape.size() > kMaxRank ? fmt::format("{} dimensions", spec.shape.size())
                                            : ToString(spec.shape));
  }
  if (const auto dtype = json.Find("dtype")) {
    const std::string name = dtype->String();
    if (name != "f32" && name != "i32") dtype->Fail("\"f32\" or \"i32\"");
    if (name == "i32") spec.dtype = DType::kI32;
  }
  return spec;
}

// Refuses the name of an input that no input or earlier layer has: says whether a later layer does.
[[noreturn]] void FailUnknown(const JsonView& input, const JsonView& layer, const JsonView& model,
                              const NameTable& names) {
  const std::string name = input.String();
  const std::string expected = "the name of a graph input or of an earlier layer";
  if (name == layer.At("name").String()) input.Fail(expected, "the layer itself, \"" + name + "\"");
  for (const JsonView& other : model.At("layers").Items()) {
    const auto other_name = other.Find("name");
    if (other_name && other_name->IsString() && other_name->String() == name) {
      input.Fail(expected, fmt::format("\"{}\", which stands later, at {}", name, other.pointer()));
    }
  }
  std::vector<std::string_view> known;
  for (const auto& [other, tensor] : names) known.push_back(other);
  std::sort(known.begin(), known.end());
  const std::string near = Nearest(name, known);
  input.Fail(expected,
             fmt::format("unknown \"{}\"{}", name,
                         near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
}

}  // namespace

Model Model::Parse(const JsonView& json) {
  Model model(json);
  json.CheckKeys({"format", "name", "inputs", "layers"});
  CheckFormat(json, "model");
  model.name_ = json.At("name").String();
  NameTable names;
  model.ReadInputs(names);
  const JsonView layers = json.At("layers");
  for (const JsonView& layer : layers.Items()) model.ReadLayer(layer, names);
  if (model.layers_.empty()) layers.Fail("one or more layers", "none");
  model.Link();
  model.CheckUse();
  return model;
}

void Model::ReadInputs(NameTable& names) {
  const JsonView inputs = json_.At("inputs");
  for (const JsonView& input : inputs.Items()) {
    input.CheckKeys({"name", "shape", "dtype"});
    std::string name = NewName(input, num_inputs(), names);
    inputs_.push_back({std::move(name), ReadSpec(input)});
  }
  if (inputs_.empty()) inputs.Fail("one or more inputs", "none");
}

void Model::ReadLayer(const JsonView& json, NameTable& names) {
  if (!json.IsObject()) json.Fail("an object");
  Node node;
  std::vector<TensorSpec> specs;
  std::vector<JsonView> places;
  if (const auto inputs = json.Find("inputs")) {
    places = inputs->Items();
    if (places.empty()) inputs->Fail("one or more names", "none");
    for (const JsonView& input : places) {
      const auto found = names.find(input.String());
      if (found == names.end()) FailUnknown(input, json, json_, names);
      node.inputs.push_back(found->second);
    }
  } else {
    node.inputs.push_back(layers_.empty() ? 0 : OutputOf(num_layers() - 1));
    places.push_back(json);
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const int producer = ProducerOf(node.inputs[i]);
    if (producer >= 0 && layers_[producer].layer->is_loss()) {
      places[i].Fail("an input that is not a loss",
                     fmt::format("\"{}\"", tensor_name(node.inputs[i])));
    }
    specs.push_back(spec(node.inputs[i]));
  }
  NewName(json, num_tensors(), names);
  node.layer = MakeLayer(json, specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool passes_on = node.layer->output().dtype == DType::kI32;
    if (specs[i].dtype == DType::kI32 && node.layer->limit() == 0 && !passes_on) {
      places[i].Fail("an input of type f32 (embeddings and losses read i32)",
                     fmt::format("\"{}\" of type i32", tensor_name(node.inputs[i])));
    }
  }
  layers_.push_back(std::move(node));
}

void Model::Link() {
  consumers_.resize(static_cast<size_t>(num_tensors()));
  needs_gradient_.assign(static_cast<size_t>(num_tensors()), false);
  for (int l = 0; l < num_layers(); ++l) {
    Node& node = layers_[l];
    bool needs = std::any_of(node.layer->params().begin(), node.layer->params().end(),
                             [](const ParamSpec& param) { return param.trainable; });
    for (const TensorId input : node.inputs) {
      consumers_[input].push_back(l);
      node.wants_dx.push_back(needs_gradient_[input]);
      needs = needs || needs_gradient_[input];
    }
    needs_gradient_[OutputOf(l)] = needs;
    if (node.layer->is_loss()) main_loss_ = l;
  }
  LimitInputs();
}

// From the readers back to the graph's inputs: a layer that makes i32 of i32 passes values on.
void Model::LimitInputs() {
  std::vector<int64_t> limit(static_cast<size_t>(num_tensors()), 0);  // 0: no reader limits it
  std::vector<bool> target(static_cast<size_t>(num_tensors()), true);
  for (int l = num_layers(); l-- > 0;) {
    const Layer& layer = *layers_[l].layer;
    const TensorId y = OutputOf(l);
    const bool passes_on = layer.output().dtype == DType::kI32;
    for (const TensorId x : layers_[l].inputs) {
      if (spec(x).dtype != DType::kI32) continue;
      const int64_t own = passes_on ? limit[y] : layer.limit();
      if (own > 0) limit[x] = limit[x] == 0 ? own : std::min(limit[x], own);
      target[x] = target[x] && (passes_on ? target[y] : layer.is_loss());
    }
  }
  for (int i = 0; i < num_inputs(); ++i) {
    if (inputs_[i].spec.dtype != DType::kI32) continue;
    inputs_[i].limit = limit[i];
    inputs_[i].target = target[i];
  }
}

void Model::CheckUse() const {
  const auto inputs = json_.At("inputs").Items();
  const auto layers = json_.At("layers").Items();
  bool loss = false;
  for (int l = 0; l < num_layers(); ++l) {
    loss = loss || layers_[l].layer->is_loss();
    if (layers_[l].layer->is_loss() || !consumers_[OutputOf(l)].empty()) continue;
    layers[l].Fail("a layer whose output another layer reads, or a loss",
                   fmt::format("\"{}\", which nobody reads", layers_[l].layer->name()));
  }
  for (int i = 0; i < num_inputs(); ++i) {
    if (!consumers_[i].empty()) continue;
    inputs[i].Fail("a graph input that a layer reads",
                   fmt::format("\"{}\", which nobody reads", inputs_[i].name));
  }
  // Without a loss the last layer's output is read by nobody, which the first loop has refused.
  PD_CHECK(loss, "a graph without loss");
}

const TensorSpec& Model::spec(TensorId tensor) const {
  const int producer = ProducerOf(tensor);
  return producer < 0 ? inputs_[tensor].spec : layers_[producer].layer->output();
}

const std::string& Model::tensor_name(TensorId tensor) const {
  const int producer = ProducerOf(tensor);
  return producer < 0 ? inputs_[tensor].name : layers_[producer].layer->name();
}

int Model::FindLayer(std::string_view name) const {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const Node& node) { return node.layer->name() == name; });
  return found == layers_.end() ? -1 : static_cast<int>(found - layers_.begin());
}

}  // namespace pd
