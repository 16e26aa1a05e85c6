// What a model file may get wrong as a graph, and what the user is told.
#include "model/model_text.h"
#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

const std::string kFlat = R"({"name": "flat", "type": "flatten"},)";
const std::string kLoss =
    R"({"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc", "label"]})";
const std::string kFc = R"({"name": "fc", "type": "linear", "out_features": 10},)";

std::string Refusal(const std::string& layers) {
  return ErrorOf([&] { ParseLayers(layers); });
}
std::string TextRefusal(const std::string& text) {
  return ErrorOf([&] { ParseText(text); });
}

// A whole document whose inputs are `inputs`.
std::string InputsRefusal(const std::string& inputs) {
  return TextRefusal(R"({"format": "pipedream.model/1", "name": "x", "inputs": )" + inputs +
                     R"(, "layers": []})");
}

TEST_CASE("The base of these tests is a valid model") {
  CHECK(Refusal(kFlat + kFc + kLoss) == "(no error)");
}

TEST_CASE("A layer's complaint has its pointer in the model") {
  CHECK(
      Refusal(kFlat + R"({"name": "fc", "type": "linear", "out_featurs": 10},)" + kLoss) ==
      "m.json: /layers/1/out_featurs: unknown key \"out_featurs\"; did you mean \"out_features\"?");
  CHECK(Refusal(kFlat + R"({"name": "fc", "type": "linear", "out_features": 2.5},)" + kLoss) ==
        "m.json: /layers/1/out_features: expected an integer from 1 to 16777216, found 2.5");
  CHECK_THAT(Refusal(kFlat + R"({"name": "fc", "type": "lineal"},)" + kLoss),
             ContainsSubstring("m.json: /layers/1/type: expected one of add, "));
  CHECK(Refusal(R"({"name": "conv", "type": "conv2d", "out_channels": 1, "kernel": 9})") ==
        "m.json: /layers/0: expected an image as large as the kernel as input of conv2d \"conv\", "
        "found f32 "
        "[1, 8, 8]");
}

TEST_CASE("The document's own keys are checked") {
  CHECK_THAT(TextRefusal("[]"), ContainsSubstring("m.json: /: expected an object, found an array"));
  CHECK_THAT(TextRefusal("{}"), ContainsSubstring("expected a key \"format\", found none"));
  CHECK(TextRefusal(R"({"format": "pipedream.profile/1"})") ==
        "m.json: /format: expected \"pipedream.model/1\", found \"pipedream.profile/1\"");
  CHECK_THAT(TextRefusal(R"({"format": "pipedream.model/1", "layer": []})"),
             ContainsSubstring("/layer: unknown key \"layer\"; did you mean \"layers\"?"));
  CHECK_THAT(TextRefusal(R"({"format": "pipedream.model/1"})"),
             ContainsSubstring("expected a key \"name\""));
  CHECK_THAT(TextRefusal(R"({"format": "pipedream.model/1", "name": "x"})"),
             ContainsSubstring("expected a key \"inputs\""));
  CHECK_THAT(TextRefusal(R"({"format": "pipedream.model/1", "name": 1})"),
             ContainsSubstring("/name: expected a string, found 1"));
  CHECK(Refusal("") == "m.json: /layers: expected one or more layers, found none");
  CHECK_THAT(Refusal("1"), ContainsSubstring("m.json: /layers/0: expected an object, found 1"));
}

TEST_CASE("Graph inputs have a name, a sane shape and a known type") {
  CHECK(InputsRefusal("[]") == "m.json: /inputs: expected one or more inputs, found none");
  CHECK_THAT(InputsRefusal("{}"), ContainsSubstring("/inputs: expected an array"));
  CHECK_THAT(InputsRefusal(R"([{"shape": []}])"),
             ContainsSubstring("m.json: /inputs/0: expected a key \"name\""));
  CHECK_THAT(InputsRefusal(R"([{"name": "x"}])"),
             ContainsSubstring("/inputs/0: expected a key \"shape\""));
  CHECK_THAT(InputsRefusal(R"([{"name": "x", "shape": 3}])"),
             ContainsSubstring("/inputs/0/shape: expected an array"));
  for (const char* extent : {"0", "-1", "2.5", "\"3\"", "null", "16777217", "1e309x"}) {
    CAPTURE(extent);
    const std::string error =
        InputsRefusal(std::string(R"([{"name": "x", "shape": [1, )") + extent + "]}]");
    if (extent != std::string("1e309x")) {
      CHECK_THAT(error, ContainsSubstring(
                            "/inputs/0/shape/1: expected an integer from 1 to 16777216, found "));
    } else {
      CHECK_THAT(error, ContainsSubstring("m.json: not JSON: "));
    }
  }
  CHECK_THAT(
      InputsRefusal(R"([{"name": "x", "shape": [16777216, 16777216, 16777216]}])"),
      ContainsSubstring("/inputs/0/shape: expected at most 8 dimensions and 68719476736 elements"));
  CHECK_THAT(InputsRefusal(R"([{"name": "x", "shape": [1, 1, 1, 1, 1, 1, 1, 1, 1]}])"),
             ContainsSubstring("found 9 dimensions"));
  CHECK(InputsRefusal(R"([{"name": "x", "shape": [1], "dtype": "f16"}])") ==
        "m.json: /inputs/0/dtype: expected \"f32\" or \"i32\", found \"f16\"");
  CHECK_THAT(InputsRefusal(R"([{"name": "x", "shap": [1]}])"),
             ContainsSubstring("did you mean \"shape\"?"));
}

TEST_CASE("Names are unique over inputs and layers, printable and not empty") {
  CHECK(Refusal(kFlat + kFc + R"({"name": "flat", "type": "relu"},)" + kLoss) ==
        "m.json: /layers/2/name: expected a name that no other input or layer has, found \"flat\" "
        "again");
  CHECK_THAT(Refusal(R"({"name": "image", "type": "flatten"},)" + kLoss),
             ContainsSubstring("m.json: /layers/0/name: expected a name that no other"));
  CHECK_THAT(InputsRefusal(R"([{"name": "x", "shape": []}, {"name": "x", "shape": []}])"),
             ContainsSubstring("m.json: /inputs/1/name: expected a name that no other"));
  CHECK_THAT(Refusal(R"({"name": "", "type": "relu"})"),
             ContainsSubstring("/layers/0/name: expected a string of"));
  CHECK_THAT(Refusal(R"({"name": "a\nb", "type": "relu"})"), ContainsSubstring("found \"a\\nb\""));
  CHECK_THAT(Refusal(R"({"type": "relu"})"),
             ContainsSubstring("/layers/0: expected a key \"name\""));
}

TEST_CASE("Inputs that are unknown, later, the layer itself or a cycle are refused") {
  const std::string expected = "expected the name of a graph input or of an earlier layer, found ";
  CHECK(Refusal(kFlat +
                R"({"name": "fc", "type": "linear", "out_features": 10, "inputs": ["flatt"]},)" +
                kLoss) ==
        "m.json: /layers/1/inputs/0: " + expected + "unknown \"flatt\"; did you mean \"flat\"?");
  CHECK(Refusal(R"({"name": "a", "type": "relu", "inputs": ["zebra"]})") ==
        "m.json: /layers/0/inputs/0: " + expected + "unknown \"zebra\"");
  CHECK(Refusal(R"({"name": "a", "type": "relu", "inputs": ["a"]})") ==
        "m.json: /layers/0/inputs/0: " + expected + "the layer itself, \"a\"");
  CHECK(
      Refusal(
          R"({"name": "a", "type": "add", "inputs": ["image", "b"]}, {"name": "b", "type": "relu"})") ==
      "m.json: /layers/0/inputs/1: " + expected + "\"b\", which stands later, at /layers/1");
  CHECK_THAT(Refusal(R"({"name": "a", "type": "relu", "inputs": []})"),
             ContainsSubstring("/layers/0/inputs: expected one or more names, found none"));
  CHECK_THAT(Refusal(R"({"name": "a", "type": "relu", "inputs": "image"})"),
             ContainsSubstring("/layers/0/inputs: expected an array"));
  CHECK_THAT(Refusal(R"({"name": "a", "type": "relu", "inputs": [0]})"),
             ContainsSubstring("/layers/0/inputs/0: expected a string, found 0"));
}

TEST_CASE("Outputs and inputs that nobody reads are refused, and so is a model without loss") {
  CHECK(Refusal(kFlat + kFc + R"({"name": "spare", "type": "relu"},)" + kLoss) ==
        "m.json: /layers/2: expected a layer whose output another layer reads, or a loss, found "
        "\"spare\", which "
        "nobody reads");
  CHECK_THAT(
      Refusal(kFlat + R"({"name": "fc", "type": "linear", "out_features": 10})"),
      ContainsSubstring(
          "m.json: /layers/1: expected a layer whose output another layer reads, or a loss"));
  CHECK(
      TextRefusal(
          R"({"format": "pipedream.model/1", "name": "x", "inputs": [{"name": "image", "shape": [4]},
      {"name": "extra", "shape": [4]}, {"name": "label", "shape": [], "dtype": "i32"}], "layers": [
      {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["image", "label"]}]})") ==
      "m.json: /inputs/1: expected a graph input that a layer reads, found \"extra\", which nobody "
      "reads");
}

TEST_CASE("Only embeddings and losses read i32, and nobody reads a loss") {
  CHECK_THAT(Refusal(R"({"name": "a", "type": "relu", "inputs": ["label"]})"),
             ContainsSubstring(
                 "m.json: /layers/0/inputs/0: expected f32 as input of relu \"a\", found i32 []"));
  CHECK(Refusal(kFlat + kFc + kLoss + R"(,{"name": "more", "type": "relu"})") ==
        "m.json: /layers/3: expected an input that is not a loss, found \"loss\"");
  CHECK_THAT(
      Refusal(kFlat + kFc + kLoss + R"(,{"name": "m", "type": "add", "inputs": ["fc", "loss"]})"),
      ContainsSubstring("/layers/3/inputs/1: expected an input that is not a loss"));
}

}  // namespace
}  // namespace pd
