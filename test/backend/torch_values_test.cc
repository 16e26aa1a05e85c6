#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/graph.h"
#include "base/error.h"
#include "support/catch.h"

// Every operation against PyTorch's own results; test/torch_values/make.py says how they were made.

namespace pd::test {
namespace {

using Json = nlohmann::json;

const Json& Cases() {
  static const Json values =
      Json::parse(std::ifstream(PD_SOURCE_DIR "/test/torch_values/values.json"));
  return values.at("cases");
}

Tensor ToTensor(const Json& json) {
  return {.shape = json.at("shape").get<Shape>(),
          .dtype = json.value("dtype", "f32") == "i32" ? DType::kI32 : DType::kF32,
          .values = json.at("values").get<std::vector<double>>()};
}

struct Tolerance {
  double absolute, relative;
};

/// The results have 9 digits; the largest are in the hundreds.
Tolerance ToleranceFor(const Backend& backend) {
  if (backend.dtype() == DType::kF64) return {.absolute = 1e-8, .relative = 1e-8};
  return {.absolute = 2e-5, .relative = 2e-5};
}

std::vector<Tensor> InputsOf(const Json& json) {
  std::vector<Tensor> inputs;
  for (const Json& input : json.at("inputs")) inputs.push_back(ToTensor(input));
  return inputs;
}

std::string LayersOf(const Json& json) {
  Json layer = json.at("layer");
  for (size_t i = 0; i < json.at("inputs").size(); ++i) {
    layer["inputs"].push_back(fmt::format("x{}", i));
  }
  return Json::array({layer}).dump();
}

void SetParams(const Json& json, Graph* graph) {
  for (const char* part : {"params", "state"}) {
    if (!json.contains(part)) continue;
    for (const auto& [name, value] : json.at(part).items()) {
      graph->SetParam("l." + name, ToTensor(value));
    }
  }
}

void CheckGradients(const Json& json, const Graph& graph, const Graph::Slot* slot,
                    const Tolerance& tolerance) {
  const Json& inputs = json.at("input_grads");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_null()) continue;
    CheckClose(graph.InputGradient(slot, i), ToTensor(inputs[i]), tolerance.absolute,
               tolerance.relative, fmt::format("gradient of input {}", i));
  }
  REQUIRE(json.at("param_grads").size() == graph.TrainableNames().size());
  for (const auto& [name, value] : json.at("param_grads").items()) {
    CheckClose(graph.ParamGradient(slot, "l." + name), ToTensor(value), tolerance.absolute,
               tolerance.relative, "gradient of " + name);
  }
}

void RunCase(const Json& json, Backend& backend) {
  const Tolerance tolerance = ToleranceFor(backend);
  const bool training = json.at("training");
  const std::vector<Tensor> x = InputsOf(json);
  Graph graph(backend, LayersOf(json), x);
  SetParams(json, &graph);
  Graph::Slot* slot = graph.MakeSlot();
  graph.Forward(slot, x, 0, training);
  CheckClose(graph.Output(slot), ToTensor(json.at("output")), tolerance.absolute,
             tolerance.relative, "output");
  if (json.contains("state_after")) {
    for (const auto& [name, value] : json.at("state_after").items()) {
      CheckClose(graph.Param("l." + name), ToTensor(value), tolerance.absolute, tolerance.relative,
                 name);
    }
  }
  // Batch norm has no gradient in evaluation: nothing trains there.
  if (!training) return;
  const Json& dy = json.at("grad_output");
  graph.Backward(slot, dy.is_null() ? Tensor{} : ToTensor(dy));
  CheckGradients(json, graph, slot, tolerance);
}

TEST_CASE("every operation gives PyTorch's outputs, gradients and running statistics", "[torch]") {
  REQUIRE(Cases().size() >= 85);
  for (const std::string& kind : Kinds()) {
    const auto backend = MakeBackend(kind, 1);
    for (const Json& json : Cases()) {
      DYNAMIC_SECTION(kind << " " << json.at("name").get<std::string>()) {
        RunCase(json, *backend);
      }
    }
  }
}

}  // namespace
}  // namespace pd::test
