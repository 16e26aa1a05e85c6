#include "model/model.h"

#include "model/model_text.h"
#include "support/catch.h"

namespace pd {
namespace {

using Consumers = std::vector<int>;

TEST_CASE("A chain: each layer reads the one before, the first the first input") {
  const Model model = ParseLayers(R"(
      {"name": "flat", "type": "flatten"},
      {"name": "fc", "type": "linear", "out_features": 10},
      {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc", "label"]})");
  CHECK(model.name() == "test");
  CHECK(model.num_inputs() == 2);
  CHECK(model.num_layers() == 3);
  CHECK(model.num_tensors() == 5);
  CHECK(model.layers()[0].inputs == std::vector<TensorId>{0});
  CHECK(model.layers()[1].inputs == std::vector<TensorId>{2});
  CHECK(model.layers()[2].inputs == std::vector<TensorId>{3, 1});
  CHECK(model.OutputOf(1) == 3);
  CHECK(model.ProducerOf(3) == 1);
  CHECK(model.ProducerOf(1) == -1);
  CHECK(model.spec(0) == TensorSpec{{1, 8, 8}});
  CHECK(model.spec(1) == TensorSpec{{}, DType::kI32});
  CHECK(model.spec(2) == TensorSpec{{64}});
  CHECK(model.tensor_name(1) == "label");
  CHECK(model.tensor_name(3) == "fc");
  CHECK(model.FindLayer("fc") == 1);
  CHECK(model.FindLayer("label") == -1);
  CHECK(model.inputs()[0].limit == 0);
  CHECK(!model.inputs()[0].target);
  CHECK(model.inputs()[1].limit == 10);
  CHECK(model.inputs()[1].target);
  CHECK(model.main_loss() == 2);
  CHECK(model.json().At("name").String() == "test");
}

TEST_CASE("A gradient flows back to what lies behind a parameter, and no further") {
  const Model model = ParseLayers(R"(
      {"name": "flat", "type": "flatten"},
      {"name": "squash", "type": "tanh"},
      {"name": "fc1", "type": "linear", "out_features": 10},
      {"name": "relu", "type": "relu"},
      {"name": "fc2", "type": "linear", "out_features": 10},
      {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc2", "label"]})");
  const bool needs[] = {false, false, false, false, true, true, true, true};
  for (TensorId t = 0; t < model.num_tensors(); ++t) CHECK(model.needs_gradient(t) == needs[t]);
  CHECK(model.layers()[1].wants_dx == std::vector<bool>{false});
  CHECK(model.layers()[2].wants_dx == std::vector<bool>{false});
  CHECK(model.layers()[3].wants_dx == std::vector<bool>{true});
  CHECK(model.layers()[5].wants_dx == std::vector<bool>{true, false});
}

TEST_CASE("Branches: every consumer stands in order, one that reads twice stands twice") {
  const Model model = ParseLayers(R"(
      {"name": "conv", "type": "conv2d", "out_channels": 4, "kernel": 3, "padding": 1},
      {"name": "a", "type": "relu"},
      {"name": "b", "type": "tanh", "inputs": ["conv"]},
      {"name": "sum", "type": "add", "inputs": ["b", "a", "conv", "conv"]},
      {"name": "cat", "type": "concat", "inputs": ["sum", "image"]},
      {"name": "flat", "type": "flatten"},
      {"name": "fc", "type": "linear", "out_features": 10},
      {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc", "label"]})");
  CHECK(model.consumers(0) == Consumers{0, 4});
  CHECK(model.consumers(1) == Consumers{7});
  CHECK(model.consumers(model.OutputOf(0)) == Consumers{1, 2, 3, 3});
  CHECK(model.consumers(model.OutputOf(7)).empty());
  CHECK(model.spec(model.OutputOf(4)).shape == Shape{5, 8, 8});
  CHECK(model.layers()[3].wants_dx == std::vector<bool>{true, true, true, true});
  CHECK(model.layers()[4].wants_dx == std::vector<bool>{true, false});
}

TEST_CASE("Two losses: the label's limit is the least of theirs, the last one is the main one") {
  const Model model = ParseLayers(R"(
      {"name": "flat", "type": "flatten"},
      {"name": "fc1", "type": "linear", "out_features": 12},
      {"name": "loss1", "type": "softmax_cross_entropy", "inputs": ["fc1", "label"], "weight": 0.3},
      {"name": "fc2", "type": "linear", "inputs": ["flat"], "out_features": 10},
      {"name": "loss2", "type": "softmax_cross_entropy", "inputs": ["fc2", "label"]})");
  CHECK(model.inputs()[1].limit == 10);
  CHECK(model.inputs()[1].target);
  CHECK(model.main_loss() == 4);
  CHECK(model.layers()[2].layer->loss_weight() == 0.3);
}

TEST_CASE("The limit of i32 is the least of its readers', also through flatten and reshape") {
  const Model model = ParseText(R"({"format": "pipedream.model/1", "name": "m", "inputs": [
      {"name": "tokens", "shape": [2, 3], "dtype": "i32"},
      {"name": "targets", "shape": [2, 3], "dtype": "i32"},
      {"name": "both", "shape": [6], "dtype": "i32"}],
      "layers": [
      {"name": "flat", "type": "flatten", "inputs": ["tokens"]},
      {"name": "rows", "type": "embedding", "inputs": ["flat"], "num_embeddings": 50, "embedding_dim": 4},
      {"name": "more", "type": "embedding", "inputs": ["both"], "num_embeddings": 9, "embedding_dim": 4},
      {"name": "sum", "type": "add", "inputs": ["rows", "more"]},
      {"name": "fc", "type": "linear", "out_features": 7},
      {"name": "t", "type": "flatten", "inputs": ["targets"]},
      {"name": "aux", "type": "softmax_cross_entropy", "inputs": ["fc", "both"]},
      {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc", "t"]}]})");
  CHECK(model.inputs()[0].limit == 50);
  CHECK(!model.inputs()[0].target);
  CHECK(model.inputs()[1].limit == 7);
  CHECK(model.inputs()[1].target);
  CHECK(model.inputs()[2].limit == 7);
  CHECK(!model.inputs()[2].target);
  CHECK(model.main_loss() == 7);
  CHECK(model.needs_gradient(model.OutputOf(1)));
  CHECK(!model.needs_gradient(model.OutputOf(5)));
}

TEST_CASE("Names may hold any printable characters") {
  const Model model = ParseLayers(R"(
      {"name": "a b/c~d", "type": "flatten", "inputs": ["image"]},
      {"name": "fc.1 \"ü\"", "type": "linear", "out_features": 2, "inputs": ["a b/c~d"]},
      {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["fc.1 \"ü\"", "label"]})");
  CHECK(model.FindLayer("fc.1 \"ü\"") == 1);
}

TEST_CASE("A model outlives its document and can be moved") {
  Model moved = [] {
    Model model = ParseLayers(R"({"name": "flat", "type": "flatten"},
        {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["flat", "label"]})");
    return model;
  }();
  const Model model = std::move(moved);
  CHECK(model.json().At("layers").Items().size() == 2);
  CHECK(model.layers()[1].wants_dx == std::vector<bool>{false, false});
}

TEST_CASE("A chain of ten thousand layers is read in a moment") {
  std::string layers = R"({"name": "flat", "type": "flatten"})";
  for (int i = 0; i < 10'000; ++i)
    layers += R"(,{"name": "relu)" + std::to_string(i) + R"(", "type": "relu"})";
  layers +=
      R"(,{"name": "loss", "type": "softmax_cross_entropy", "inputs": ["relu9999", "label"]})";
  CHECK(ParseLayers(layers).num_layers() == 10'002);
}

}  // namespace
}  // namespace pd
