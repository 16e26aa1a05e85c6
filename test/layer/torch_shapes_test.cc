// Output and parameter shapes against those that PyTorch gave (test/torch_values).
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "layer/make.h"
#include "support/catch.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;

// The minibatch dimension left out.
TensorSpec SpecOf(const Json& tensor) {
  TensorSpec spec{tensor["shape"].get<Shape>()};
  spec.shape.erase(spec.shape.begin());
  if (tensor.contains("dtype")) spec.dtype = DType::kI32;
  return spec;
}

void CheckParams(const Layer& layer, const Json& expected, bool trainable, size_t& at) {
  for (const auto& [name, tensor] : expected.items()) {
    REQUIRE(at < layer.params().size());
    const ParamSpec& param = layer.params()[at++];
    CHECK(param.name == name);
    CHECK(param.shape == tensor["shape"].get<Shape>());
    CHECK(param.trainable == trainable);
  }
}

TEST_CASE("Output and parameter shapes equal PyTorch's") {
  const std::string path = PD_SOURCE_DIR "/test/torch_values/values.json";
  const Json document = Json::parse(ReadFile(path));
  REQUIRE(document["cases"].size() > 50);
  for (const Json& c : document["cases"]) {
    CAPTURE(c["name"]);
    std::vector<TensorSpec> inputs;
    for (const Json& input : c["inputs"]) inputs.push_back(SpecOf(input));
    const auto layer = MakeLayer(JsonView::Parse(c["layer"].dump(), "values.json"), inputs);
    CHECK(layer->output() == SpecOf(c["output"]));
    size_t at = 0;
    CheckParams(*layer, c["params"], true, at);
    if (c.contains("state")) CheckParams(*layer, c["state"], false, at);
    CHECK(at == layer->params().size());
  }
}

}  // namespace
}  // namespace pd
