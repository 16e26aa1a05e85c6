// The models that ship with the project, against parameter counts by hand.
#include <filesystem>

#include "base/file.h"
#include "model/model.h"
#include "support/catch.h"

namespace pd {
namespace {

Model Load(const std::string& name) {
  const std::string path = std::string(PD_SOURCE_DIR) + "/models/" + name + ".json";
  return Model::Parse(JsonView::Parse(ReadFile(path), path));
}

int64_t TrainableElements(const Model& model) {
  int64_t elements = 0;
  for (const Model::Node& node : model.layers()) {
    for (const ParamSpec& param : node.layer->params()) {
      if (param.trainable) elements += Elements(param.shape);
    }
  }
  return elements;
}

Shape OutputShape(const Model& model, const char* layer) {
  return model.layers().at(static_cast<size_t>(model.FindLayer(layer))).layer->output().shape;
}

TEST_CASE(
    "Every shipped model reads an image and a label, bears its file's name, and ends in ten "
    "classes") {
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PD_SOURCE_DIR "/models")) {
    CAPTURE(entry.path());
    if (entry.path().extension() != ".json") continue;
    const Model model = Load(entry.path().stem().string());
    ++models;
    CHECK(model.name() == entry.path().stem().string());
    REQUIRE(model.num_inputs() == 2);
    CHECK(model.inputs()[0].name == "image");
    CHECK(model.inputs()[0].spec == TensorSpec{{1, 28, 28}});
    CHECK(model.label() == 1);
    CHECK(model.inputs()[1].spec == TensorSpec{{}, DType::kI32});
    CHECK(model.layers().back().layer->is_loss());
    CHECK(model.classes() == 10);
  }
  CHECK(models >= 6);
}

TEST_CASE("lenet and mini have the parameters of a hand count") {
  CHECK(TrainableElements(Load("lenet")) ==
        (25 * 20 + 20) + (20 * 25 * 50 + 50) + (800 * 500 + 500) + (500 * 10 + 10));
  CHECK(TrainableElements(Load("mini")) == (9 * 32 + 32) + (32 * 9 * 64 + 64) +
                                               (3136 * 2048 + 2048) + (2048 * 2048 + 2048) +
                                               (2048 * 10 + 10));
}

TEST_CASE("vgg11_bn is VGG-A with one input channel and a 1x1 image at its classifier") {
  const Model model = Load("vgg11_bn");
  CHECK(OutputShape(model, "pool5") == Shape{512, 1, 1});
  // torchvision's vgg11_bn has 9,220,480 in its convolutions and 5,504 in its batch norms; its
  // first convolution reads three channels.
  CHECK(TrainableElements(model) == (9'220'480 - 64 * 2 * 9) + 5'504 + (512 * 4096 + 4096) +
                                        (4096 * 4096 + 4096) + (4096 * 10 + 10));
}

TEST_CASE("resnet is ResNet-20 with one input channel and projection shortcuts") {
  const Model model = Load("resnet");
  CHECK(OutputShape(model, "block1_3_relu2") == Shape{16, 28, 28});
  CHECK(OutputShape(model, "block2_3_relu2") == Shape{32, 14, 14});
  CHECK(OutputShape(model, "block3_3_relu2") == Shape{64, 7, 7});
  // The original for CIFAR-10 has 269,722, with three input channels and shortcuts without
  // parameters.
  CHECK(TrainableElements(model) == 269'722 - 16 * 2 * 9 + (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64));
}

TEST_CASE("inception has the parameters of a hand count") {
  const Model model = Load("inception");
  CHECK(OutputShape(model, "mix1_concat") == Shape{112, 14, 14});
  CHECK(OutputShape(model, "mix2_concat") == Shape{160, 14, 14});
  CHECK(OutputShape(model, "mix3_concat") == Shape{224, 7, 7});
  const auto mix = [](int in, int a, int b1, int b, int c1, int c, int d) {
    return (in * a + a) + (in * b1 + b1) + (b1 * b * 9 + b) + (in * c1 + c1) + (c1 * c * 25 + c) +
           (in * d + d);
  };
  CHECK(TrainableElements(model) ==
        (9 * 32 + 32) + (32 * 9 * 64 + 64) + mix(64, 32, 32, 48, 8, 16, 16) +
            mix(112, 48, 48, 64, 8, 24, 24) + mix(160, 64, 64, 96, 16, 32, 32) + (224 * 10 + 10));
}

TEST_CASE("even has a cut with equal work on both sides, within 5 %") {
  const Model model = Load("even");
  double total = 0;
  std::vector<double>
      before;  // work up to and with each layer: forward, both gradients where wanted
  for (const Model::Node& node : model.layers()) {
    total += node.layer->ForwardFlops() * (node.wants_dx[0] ? 3 : 2);
    before.push_back(total);
  }
  double best = 1;
  for (const double work : before) best = std::min(best, std::abs(2 * work - total) / total);
  CHECK(best < 0.05);
}

}  // namespace
}  // namespace pd
