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

struct Shipped {
  std::string name;
  Shape image;  // empty: reads something else
  int64_t classes = 0;
};

const std::vector<Shipped> kShipped = {
    {"alexnet", {3, 224, 224}, 1000},
    {"even", {1, 28, 28}, 10},
    {"gpt_mini", {}, 128},
    {"inception", {1, 28, 28}, 10},
    {"inception_v3", {3, 299, 299}, 1000},
    {"inception_v3_noaux", {3, 299, 299}, 1000},
    {"lenet", {1, 28, 28}, 10},
    {"lstm_lm", {}, 128},
    {"mini", {1, 28, 28}, 10},
    {"resnet", {1, 28, 28}, 10},
    {"resnet50", {3, 224, 224}, 1000},
    {"resnet_cifar", {3, 32, 32}, 10},
    {"s2vt", {}, 13000},
    {"vgg11_bn", {1, 28, 28}, 10},
    {"vgg16", {3, 224, 224}, 1000},
};

TEST_CASE("every shipped model bears its file's name and ends in a loss over its classes") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PD_SOURCE_DIR "/models")) {
    if (entry.path().extension() == ".json") ++files;
  }
  CHECK(files == static_cast<int>(kShipped.size()));
  for (const Shipped& shipped : kShipped) {
    INFO(shipped.name);
    const Model model = Load(shipped.name);
    CHECK(model.name() == shipped.name);
    CHECK(model.main_loss() == model.num_layers() - 1);
    const Model::Input& label = model.inputs().back();
    CHECK(label.spec.dtype == DType::kI32);
    CHECK(label.limit == shipped.classes);
    CHECK(label.target);
    if (shipped.image.empty()) continue;
    REQUIRE(model.num_inputs() == 2);
    CHECK(model.inputs()[0].name == "image");
    CHECK(model.inputs()[0].spec == TensorSpec{shipped.image});
    CHECK(label.name == "label");
    CHECK(label.spec.shape.empty());
  }
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

void CheckShapes(const Model& model, const std::vector<std::pair<const char*, Shape>>& wanted) {
  for (const auto& [layer, shape] : wanted) {
    INFO(layer);
    CHECK(OutputShape(model, layer) == shape);
  }
}

TEST_CASE("vgg16 is the published one: 138,357,544 parameters") {
  const Model model = Load("vgg16");
  CHECK(TrainableElements(model) == 138'357'544);
  CheckShapes(model, {{"features.4", {64, 112, 112}},
                      {"features.9", {128, 56, 56}},
                      {"features.16", {256, 28, 28}},
                      {"features.23", {512, 14, 14}},
                      {"features.30", {512, 7, 7}},
                      {"flatten", {25088}},
                      {"classifier.6", {1000}}});
}

TEST_CASE("alexnet is torchvision's: 61,100,840 parameters") {
  const Model model = Load("alexnet");
  CHECK(TrainableElements(model) == 61'100'840);
  CheckShapes(model, {{"features.0", {64, 55, 55}},
                      {"features.2", {64, 27, 27}},
                      {"features.5", {192, 13, 13}},
                      {"features.12", {256, 6, 6}},
                      {"classifier.6", {1000}}});
}

TEST_CASE("resnet50 is the published one: 25,557,032 parameters") {
  const Model model = Load("resnet50");
  CHECK(TrainableElements(model) == 25'557'032);
  CheckShapes(model, {{"maxpool", {64, 56, 56}},
                      {"layer1.2.relu", {256, 56, 56}},
                      {"layer2.3.relu", {512, 28, 28}},
                      {"layer3.5.relu", {1024, 14, 14}},
                      {"layer4.2.relu", {2048, 7, 7}},
                      {"fc", {1000}}});
}

TEST_CASE(
    "inception_v3 is torchvision's: 27,161,264 parameters, 23,834,568 without its second head") {
  const Model model = Load("inception_v3"), noaux = Load("inception_v3_noaux");
  CHECK(TrainableElements(model) == 27'161'264);
  CHECK(TrainableElements(noaux) == 23'834'568);
  for (const Model* m : {&model, &noaux}) {
    CheckShapes(*m, {{"Conv2d_1a_3x3.relu", {32, 149, 149}},
                     {"maxpool1", {64, 73, 73}},
                     {"maxpool2", {192, 35, 35}},
                     {"Mixed_5b", {256, 35, 35}},
                     {"Mixed_5d", {288, 35, 35}},
                     {"Mixed_6a", {768, 17, 17}},
                     {"Mixed_6e", {768, 17, 17}},
                     {"Mixed_7a", {1280, 8, 8}},
                     {"Mixed_7c", {2048, 8, 8}},
                     {"fc", {1000}}});
  }
  CheckShapes(model, {{"AuxLogits.conv1.relu", {768, 1, 1}}, {"AuxLogits.fc", {1000}}});
  const int aux = model.FindLayer("AuxLogits.loss");
  CHECK(model.layers().at(static_cast<size_t>(aux)).layer->loss_weight() == Approx(0.4));
}

TEST_CASE("resnet_cifar is the published ResNet-20: 269,722 parameters") {
  const Model model = Load("resnet_cifar");
  CHECK(TrainableElements(model) == 269'722);
  CheckShapes(model, {{"layer1.2.relu2", {16, 32, 32}},
                      {"layer2.2.relu2", {32, 16, 16}},
                      {"layer3.2.relu2", {64, 8, 8}},
                      {"linear", {10}}});
}

int64_t LstmElements(int64_t in, int64_t hidden) { return 4 * hidden * (in + hidden + 2); }

TEST_CASE("s2vt has the parameters of a hand count, and writes words after it has read frames") {
  const Model model = Load("s2vt");
  CHECK(TrainableElements(model) == (4096 * 500 + 500) + LstmElements(500, 1000) + 13000 * 500 +
                                        LstmElements(1500, 1000) + (1000 * 13000 + 13000));
  CheckShapes(model, {{"frame_embedding", {80, 500}},
                      {"lstm1", {100, 1000}},
                      {"zeros_then_words", {100, 500}},
                      {"lstm2", {100, 1000}},
                      {"decoded", {20, 1000}},
                      {"logits", {20, 13000}}});
  CHECK(model.inputs().at(1).limit == 13000);
  CHECK_FALSE(model.inputs().at(1).target);
}

TEST_CASE("lstm_lm and gpt_mini have the parameters of a hand count") {
  const Model lstm = Load("lstm_lm");
  CHECK(TrainableElements(lstm) ==
        128 * 128 + LstmElements(128, 256) + LstmElements(256, 256) + (256 * 128 + 128));
  CHECK(OutputShape(lstm, "linear") == Shape{64, 128});
  const Model gpt = Load("gpt_mini");
  const int64_t d = 128, norm = 2 * d,
                block = 2 * norm + (3 * d * d + 3 * d) + (d * d + d) + (4 * d * d + 4 * d) +
                        (4 * d * d + d);
  CHECK(TrainableElements(gpt) == 128 * d + 64 * d + 4 * block + norm + d * 128);
  CheckShapes(gpt, {{"transformer.h.0.attn.c_attn", {64, 384}},
                    {"transformer.h.3.attn", {64, 128}},
                    {"lm_head", {64, 128}}});
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
