#include <cmath>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_op.h"
#include "backend/graph.h"
#include "base/file.h"
#include "layer/layer.h"
#include "support/catch.h"

// Which kernels the oneDNN backend chooses, and what they must not depend on.

namespace pd::test {
namespace {

struct Chosen {
  std::string layer;
  std::vector<std::string> implementations;
};

/// The kernels of all layers of a shipped model, each planned on its producers' layouts.
std::vector<Chosen> KernelsOf(const std::string& model, int64_t batch) {
  const std::string path = PD_SOURCE_DIR "/models/" + model + ".json";
  const JsonView json = JsonView::Parse(ReadFile(path), path);
  const auto backend = MakeCpuBackend(1);
  std::map<std::string, std::pair<TensorSpec, Layout>> values;

  for (const JsonView& input : json.At("inputs").Items()) {
    TensorSpec spec;
    Shape dims = {batch};
    for (const JsonView& extent : input.At("shape").Items()) {
      spec.shape.push_back(extent.Int(1, 1 << 20));
      dims.push_back(spec.shape.back());
    }
    if (input.Find("dtype").has_value()) spec.dtype = DType::kI32;
    values[input.At("name").String()] = {spec, DenseLayout(dims, spec.dtype)};
  }
  std::vector<Chosen> chosen;
  std::string previous;
  for (const JsonView& item : json.At("layers").Items()) {
    std::vector<TensorSpec> specs;
    OpRequest request;
    std::vector<std::string> names = {previous};
    if (const auto given = item.Find("inputs")) {
      names.clear();
      for (const JsonView& name : given->Items()) names.push_back(name.String());
    }
    for (const std::string& name : names) {
      specs.push_back(values.at(name).first);
      request.x.push_back(values.at(name).second);
      request.wants_dx.push_back(name != "image" && specs.back().dtype != DType::kI32);
    }
    const auto layer = MakeLayer(item, specs);
    const auto op = layer->Plan(*backend, request, 1);
    const auto* cpu_op = dynamic_cast<const cpu::CpuOp*>(op.get());
    REQUIRE(cpu_op != nullptr);
    previous = layer->name();
    values[previous] = {layer->output(), op->info().y};
    chosen.push_back({previous, cpu_op->Implementations()});
  }
  return chosen;
}

TEST_CASE("no layer of a shipped model runs on oneDNN's plain loops", "[cpu]") {
  for (const std::string model : {"even", "inception", "lenet", "mini", "resnet", "vgg11_bn"}) {
    for (const int64_t batch : {1, 64}) {
      size_t kernels = 0;
      for (const Chosen& layer : KernelsOf(model, batch)) {
        for (const std::string& name : layer.implementations) {
          INFO(model << " " << layer.layer << " " << name);
          CHECK(name.find("ref") == std::string::npos);
          ++kernels;
        }
      }
      CHECK(kernels > 0);
    }
  }
}

const char* const kChain = R"([
  {"name":"conv1","type":"conv2d","out_channels":20,"kernel":5,"bias":false},
  {"name":"bn","type":"batch_norm"},
  {"name":"relu1","type":"relu"},
  {"name":"pool","type":"max_pool2d","kernel":2},
  {"name":"conv2","type":"conv2d","out_channels":50,"kernel":3,"padding":1},
  {"name":"lrn","type":"lrn","alpha":0.5},
  {"name":"sigmoid","type":"sigmoid"},
  {"name":"again","type":"add","inputs":["sigmoid","conv2"]},
  {"name":"cat","type":"concat","inputs":["again","pool"]},
  {"name":"drop","type":"dropout","p":0.25},
  {"name":"avg","type":"avg_pool2d","kernel":3,"stride":2,"padding":1,"ceil":true},
  {"name":"flat","type":"flatten"},
  {"name":"fc1","type":"linear","out_features":300,"bias":false},
  {"name":"bn2","type":"batch_norm"},
  {"name":"fc2","type":"linear","out_features":10},
  {"name":"loss","type":"softmax_cross_entropy","inputs":["fc2","x1"]}])";

const char* const kSequence = R"([
  {"name":"conv","type":"conv2d","out_channels":24,"kernel":5},
  {"name":"slice","type":"slice","axis":2,"begin":1,"end":21},
  {"name":"pad","type":"pad","before":[0,0,1],"after":[0,0,2]},
  {"name":"swap","type":"transpose","axes":[1,0,2]},
  {"name":"steps","type":"reshape","shape":[24,552]},
  {"name":"fc","type":"linear","out_features":72},
  {"name":"embed","type":"embedding","num_embeddings":10,"embedding_dim":72,"inputs":["x1"]},
  {"name":"word","type":"reshape","shape":[1,72]},
  {"name":"cat","type":"concat","inputs":["fc","word"]},
  {"name":"pos","type":"position_embedding"},
  {"name":"norm","type":"layer_norm"},
  {"name":"qkv","type":"linear","out_features":216},
  {"name":"attention","type":"attention","heads":3,"causal":true},
  {"name":"gelu","type":"gelu"},
  {"name":"flat","type":"flatten"},
  {"name":"logits","type":"linear","out_features":10},
  {"name":"loss","type":"softmax_cross_entropy","inputs":["logits","x1"]}])";

/// All results of one step of the chain.
std::vector<Tensor> Step(int threads, const char* layers = kChain) {
  const auto backend = MakeCpuBackend(threads);
  const std::vector<Tensor> x = {Random({19, 3, 28, 26}, 1), RandomLabels(19, 10, 2)};
  Graph graph(*backend, layers, x);
  Graph::Slot* slot = graph.MakeSlot();
  graph.Forward(slot, x, 3);
  graph.Backward(slot, {});
  std::vector<Tensor> results = {graph.Output(slot), graph.InputGradient(slot, 0)};
  for (const std::string& name : graph.TrainableNames()) {
    results.push_back(graph.ParamGradient(slot, name));
  }
  return results;
}

TEST_CASE("two runs give the same bits, wherever their memory lies", "[cpu]") {
  for (const char* layers : {kChain, kSequence}) {
    const std::vector<Tensor> first = Step(1, layers);
    const Buffer moved = MakeCpuBackend(1)->Allocate(123457);
    const std::vector<Tensor> second = Step(1, layers);
    REQUIRE(first.size() == second.size());
    for (size_t i = 0; i < first.size(); ++i) CheckEqual(second[i], first[i], std::to_string(i));
  }
}

TEST_CASE("several threads compute what one computes", "[cpu]") {
  for (const char* layers : {kChain, kSequence}) {
    const std::vector<Tensor> one = Step(1, layers);
    const std::vector<Tensor> three = Step(3, layers);
    REQUIRE(one.size() == three.size());
    for (size_t i = 0; i < one.size(); ++i) {
      double largest = 1e-3;
      for (const double value : one[i].values) largest = std::max(largest, std::abs(value));
      CheckClose(three[i], one[i], 5e-5 * largest, 0, std::to_string(i));
    }
    const std::vector<Tensor> again = Step(3, layers);
    for (size_t i = 0; i < one.size(); ++i) CheckEqual(again[i], three[i], std::to_string(i));
  }
}

TEST_CASE("a value that is no number reaches the loss", "[cpu]") {
  for (const std::string activation : {"relu", "tanh", "sigmoid", "gelu"}) {
    INFO(activation);
    const auto backend = MakeCpuBackend(1);
    Tensor x = Random({2, 5}, 1);
    x.values[3] = std::nan("");
    Graph graph(*backend, R"([{"name":"l","type":")" + activation + R"("}])", {x});
    Graph::Slot* slot = graph.MakeSlot();
    graph.Forward(slot, {x});
    const Tensor y = graph.Output(slot);
    for (size_t i = 0; i < y.values.size(); ++i) CHECK(std::isnan(y.values[i]) == (i == 3));
  }
}

}  // namespace
}  // namespace pd::test
