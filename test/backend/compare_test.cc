#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/graph.h"
#include "support/catch.h"

// Every other backend against the oracle in double, on shapes and chains that its own layouts and
// kernels may treat apart. "ref" itself runs too: it says how much float alone costs.

namespace pd::test {
namespace {

struct CompareCase {
  std::string layers;
  std::vector<Tensor> x;
};

constexpr double kBound = 5e-5;

double Largest(const Tensor& tensor) {
  double largest = 0;
  for (const double value : tensor.values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// (A bias before batch norm has a gradient of 0 that only cancellation makes: no case has one.)
/// All elements within `bound` of the largest one.
void CheckScaled(const Tensor& actual, const Tensor& expected, double bound,
                 const std::string& what) {
  CheckClose(actual, expected, bound * std::max(Largest(expected), 1e-3), 0, what);
}

void CheckSame(const Graph& graph, const Graph::Slot* slot, const Graph& oracle,
               const Graph::Slot* oracle_slot, size_t inputs, double bound) {
  CheckScaled(graph.Output(slot), oracle.Output(oracle_slot), bound, "output");
  for (const LossColumn column : {kLossCounted, kLossRight, kLossTop5}) {
    CHECK(graph.LossColumnOf(slot, column) == oracle.LossColumnOf(oracle_slot, column));
  }
  for (size_t i = 0; i < inputs; ++i) {
    CheckScaled(graph.InputGradient(slot, i), oracle.InputGradient(oracle_slot, i), bound,
                fmt::format("gradient of x{}", i));
  }
  const std::vector<std::string> trainable = oracle.TrainableNames();
  for (const std::string& name : oracle.ParamNames()) {
    if (std::find(trainable.begin(), trainable.end(), name) != trainable.end()) {
      CheckScaled(graph.ParamGradient(slot, name), oracle.ParamGradient(oracle_slot, name), bound,
                  "gradient of " + name);
    } else {
      CheckScaled(graph.Param(name), oracle.Param(name), bound, name);
    }
  }
}

void Compare(Backend& backend, const CompareCase& test, const Graph* params_of = nullptr) {
  INFO(backend.kind() << " " << test.layers << " x0 " << ToString(test.x[0].shape));
  const auto oracle_backend = MakeBackend("ref64", 1);
  Graph oracle(*oracle_backend, test.layers, test.x);
  Graph::Slot* oracle_slot = oracle.MakeSlot();
  oracle.Forward(oracle_slot, test.x, 5);
  const Tensor dy = Random(oracle.Output(oracle_slot).shape, 77, -1, 1);
  oracle.Backward(oracle_slot, dy);

  Graph graph(backend, test.layers, test.x, params_of);
  Graph::Slot* slot = graph.MakeSlot();
  graph.Forward(slot, test.x, 5);
  graph.Backward(slot, dy);
  CheckSame(graph, slot, oracle, oracle_slot, test.x.size(), kBound);
  graph.CheckPadding(slot);

  // A first layer, of whose input no gradient is wanted.
  Graph first(backend, test.layers, test.x, params_of, false);
  Graph::Slot* first_slot = first.MakeSlot();
  first.Forward(first_slot, test.x, 5);
  first.Backward(first_slot, dy);
  for (const std::string& name : oracle.TrainableNames()) {
    CheckScaled(first.ParamGradient(first_slot, name), oracle.ParamGradient(oracle_slot, name),
                kBound, "gradient of " + name + " without the input's");
  }

  // Evaluation: dropout off, running statistics used and left alone.
  oracle.Forward(oracle_slot, test.x, 5, false);
  graph.Forward(slot, test.x, 5, false);
  CheckScaled(graph.Output(slot), oracle.Output(oracle_slot), kBound, "output in evaluation");
}

void CompareAll(const std::vector<CompareCase>& cases) {
  for (const std::string& kind : Kinds()) {
    if (kind == "ref64") continue;
    const auto backend = MakeBackend(kind, 1);
    for (const CompareCase& test : cases) Compare(*backend, test);
  }
}

CompareCase One(const std::string& layer, const std::vector<Shape>& inputs) {
  CompareCase test;
  std::string names;
  for (const Shape& shape : inputs) {
    names += fmt::format("{}\"x{}\"", test.x.empty() ? "" : ",", test.x.size());
    test.x.push_back(Random(shape, 11 + test.x.size()));
  }
  test.layers = fmt::format(R"([{{"name":"l",{},"inputs":[{}]}}])", layer, names);
  return test;
}

TEST_CASE("convolutions of every shape agree with the oracle", "[cpu][compare]") {
  std::vector<CompareCase> cases;
  for (const int64_t batch : {1, 3, 64}) {
    for (const int64_t channels : {1, 3, 17, 20}) {
      cases.push_back(One(R"("type":"conv2d","out_channels":20,"kernel":3,"padding":1)",
                          {{batch, channels, 7, 5}}));
      cases.push_back(
          One(R"("type":"conv2d","out_channels":17,"kernel":1)", {{batch, channels, 1, 1}}));
    }
  }
  const auto add = [&](const std::string& keys, const Shape& x) {
    cases.push_back(One(R"("type":"conv2d",)" + keys, {x}));
  };
  add(R"("out_channels":16,"kernel":5,"bias":false)", {3, 1, 28, 28});
  add(R"("out_channels":32,"kernel":3,"stride":2,"padding":1)", {3, 16, 9, 9});
  add(R"("out_channels":5,"kernel":2,"stride":3)", {2, 3, 11, 8});
  add(R"("out_channels":8,"kernel":[1,7],"padding":[0,3])", {2, 8, 6, 13});
  add(R"("out_channels":12,"kernel":3,"groups":2,"padding":1)", {3, 20, 6, 5});
  add(R"("out_channels":32,"kernel":3,"groups":2,"padding":1)", {3, 32, 6, 5});
  add(R"("out_channels":17,"kernel":3,"groups":17,"padding":1)", {2, 17, 6, 5});
  add(R"("out_channels":34,"kernel":3,"groups":17,"stride":2)", {2, 17, 7, 5});
  add(R"("out_channels":32,"kernel":3,"groups":32,"padding":1)", {2, 32, 6, 6});
  add(R"("out_channels":4,"kernel":3,"dilation":2,"padding":2)", {2, 3, 9, 7});
  add(R"("out_channels":16,"kernel":[2,3],"dilation":[3,2],"stride":[1,2])", {2, 16, 9, 11});
  add(R"("out_channels":2,"kernel":2,"padding":3,"stride":2)", {1, 1, 3, 3});
  add(R"("out_channels":500,"kernel":4)", {3, 50, 4, 4});
  CompareAll(cases);
}

TEST_CASE("linear layers of every shape agree with the oracle", "[cpu][compare]") {
  std::vector<CompareCase> cases;
  for (const int64_t batch : {1, 3, 64}) {
    for (const int64_t in : {1, 17, 800}) {
      cases.push_back(One(R"("type":"linear","out_features":10)", {{batch, in}}));
      cases.push_back(One(R"("type":"linear","out_features":1,"bias":false)", {{batch, in}}));
    }
  }
  cases.push_back(One(R"("type":"linear","out_features":500)", {{64, 256}}));
  cases.push_back(One(R"("type":"linear","out_features":5)", {{3, 7, 20}}));
  cases.push_back(One(R"("type":"linear","out_features":5)", {{2, 3, 4, 6}}));
  CompareAll(cases);
}

TEST_CASE("pooling, activations, norms, add and concat of every shape agree with the oracle",
          "[cpu][compare]") {
  std::vector<CompareCase> cases;
  for (const std::string layer :
       {R"("type":"max_pool2d","kernel":2)",
        R"("type":"max_pool2d","kernel":3,"stride":2,"padding":1)",
        R"("type":"max_pool2d","kernel":3,"stride":2,"ceil":true)",
        R"("type":"avg_pool2d","kernel":3,"stride":2,"padding":1,"ceil":true)",
        R"("type":"avg_pool2d","kernel":[2,3],"count_include_pad":false,"padding":[0,1])",
        R"("type":"global_avg_pool2d")", R"("type":"relu")", R"("type":"tanh")",
        R"("type":"sigmoid")", R"("type":"flatten")", R"("type":"dropout","p":0.4)",
        R"("type":"batch_norm")", R"("type":"lrn","alpha":1)",
        R"("type":"lrn","size":3,"alpha":1,"beta":0.5,"k":2)"}) {
    for (const int64_t channels : {1, 3, 17, 20, 32}) {
      cases.push_back(One(layer, {{3, channels, 7, 5}}));
      cases.push_back(One(layer, {{1, channels, 6, 8}}));
    }
  }
  for (const std::string layer : {R"("type":"relu")", R"("type":"tanh")", R"("type":"batch_norm")",
                                  R"("type":"dropout")", R"("type":"flatten")"}) {
    cases.push_back(One(layer, {{64, 17}}));
    cases.push_back(One(layer, {{3, 1}}));
  }
  cases.push_back(One(R"("type":"batch_norm")", {{64, 20, 1, 1}}));
  cases.push_back(One(R"("type":"add")", {{3, 17, 5, 4}, {3, 17, 5, 4}, {3, 17, 5, 4}}));
  cases.push_back(One(R"("type":"add")", {{64, 17}, {64, 17}}));
  cases.push_back(One(R"("type":"concat")", {{3, 17, 5, 4}, {3, 1, 5, 4}, {3, 3, 5, 4}}));
  cases.push_back(One(R"("type":"concat")", {{64, 5}, {64, 32}}));
  CompareAll(cases);
}

CompareCase Embedding(const Shape& indices, int64_t count, int64_t dim) {
  return {
      fmt::format(R"([{{"name":"l","type":"embedding","num_embeddings":{},"embedding_dim":{}}}])",
                  count, dim),
      {RandomIndices(indices, count, 21)}};
}

TEST_CASE("embeddings, layer norm, gelu and attention of every shape agree with the oracle",
          "[cpu][compare]") {
  std::vector<CompareCase> cases;
  cases.push_back(Embedding({3, 7}, 11, 5));
  cases.push_back(Embedding({1, 1}, 1, 1));
  cases.push_back(Embedding({64}, 3, 17));
  cases.push_back(Embedding({2, 3, 5}, 7, 16));
  cases.push_back(Embedding({17, 33}, 300, 65));
  for (const Shape& x : {Shape{3, 7, 5}, Shape{1, 1, 1}, Shape{64, 2, 17}}) {
    cases.push_back(One(R"("type":"position_embedding")", {x}));
  }
  for (const Shape& x : {Shape{3, 17}, Shape{1, 1}, Shape{2, 3, 5}, Shape{2, 3, 4, 6},
                         Shape{64, 33}, Shape{5, 128}, Shape{3, 9, 1}}) {
    cases.push_back(One(R"("type":"layer_norm")", {x}));
    cases.push_back(One(R"("type":"gelu")", {x}));
    cases.push_back(One(R"("type":"gelu","approximate":"tanh")", {x}));
  }
  cases.push_back(
      {R"([{"name":"l","type":"layer_norm","eps":0.001}])", {Random({5, 3, 33}, 5, 9, 11)}});
  for (const char* kind : {"none", "tanh"}) {
    cases.push_back({fmt::format(R"([{{"name":"l","type":"gelu","approximate":"{}"}}])", kind),
                     {Random({5, 333}, 6, -15, 15)}});
  }
  for (const char* causal : {"false", "true"}) {
    const auto attention = [&](int heads, const Shape& x) {
      cases.push_back(
          One(fmt::format(R"("type":"attention","heads":{},"causal":{})", heads, causal), {x}));
    };
    attention(3, {3, 7, 45});
    attention(1, {1, 1, 3});
    attention(1, {5, 2, 3});
    attention(4, {2, 17, 96});
    attention(2, {2, 33, 192});
    attention(17, {1, 5, 51});
    cases.push_back(
        {fmt::format(R"([{{"name":"l","type":"attention","heads":2,"causal":{}}}])", causal),
         {Random({2, 9, 24}, 7, -20, 20)}});
  }
  CompareAll(cases);
}

TEST_CASE("slice, pad, transpose, reshape and concat along any dimension agree with the oracle",
          "[cpu][compare]") {
  std::vector<CompareCase> cases;
  const auto add = [&](const std::string& layer, const std::vector<Shape>& x) {
    cases.push_back(One(layer, x));
  };
  add(R"("type":"slice","begin":2,"end":9)", {{3, 17}});
  add(R"("type":"slice","end":1)", {{1, 1}});
  add(R"("type":"slice","begin":1,"end":16)", {{3, 17, 7, 5}});
  add(R"("type":"slice","axis":1,"begin":6,"end":7)", {{3, 17, 7, 5}});
  add(R"("type":"slice","axis":2,"begin":1,"end":4)", {{1, 3, 7, 5}});
  add(R"("type":"pad","before":[3],"after":[0])", {{3, 17}});
  add(R"("type":"pad","before":[0,2],"after":[1,0])", {{2, 7, 5}});
  add(R"("type":"pad","before":[0,2,1],"after":[1,0,3])", {{3, 17, 2, 5}});
  add(R"("type":"pad","before":[0,0],"after":[0,0])", {{2, 7, 5}});
  add(R"("type":"transpose","axes":[0])", {{3, 17}});
  add(R"("type":"transpose","axes":[1,0])", {{3, 17, 5}});
  add(R"("type":"transpose","axes":[1,2,0])", {{3, 17, 7, 5}});
  add(R"("type":"transpose","axes":[2,0,1])", {{1, 16, 1, 33}});
  add(R"("type":"transpose","axes":[3,1,0,2])", {{2, 3, 4, 5, 6}});
  add(R"("type":"reshape","shape":[5,17])", {{3, 17, 5}});
  add(R"("type":"reshape","shape":[])", {{3, 1}});
  add(R"("type":"concat","axis":1)", {{3, 2, 5}, {3, 2, 1}, {3, 2, 33}});
  add(R"("type":"concat","axis":1)", {{1, 17, 2, 5}, {1, 17, 3, 5}});
  add(R"("type":"concat","axis":2)", {{3, 17, 2, 5}, {3, 17, 2, 1}});
  CompareAll(cases);
}

TEST_CASE(
    "operations that move or normalise elements read every layout in which a convolution"
    " writes",
    "[cpu][compare]") {
  std::vector<CompareCase> cases;
  for (const int64_t channels : {16, 17, 20}) {
    for (const std::string layer :
         {R"("type":"slice","begin":3,"end":16)", R"("type":"slice","begin":0,"end":8)",
          R"("type":"slice","axis":1,"begin":2,"end":5)",
          R"("type":"pad","before":[1,0,2],"after":[0,3,1])",
          R"("type":"transpose","axes":[1,2,0])", R"("type":"transpose","axes":[0,2,1])",
          R"("type":"layer_norm")", R"("type":"gelu")", R"("type":"gelu","approximate":"tanh")",
          R"("type":"concat","axis":2,"inputs":["conv","other"])",
          R"("type":"concat","axis":1,"inputs":["conv","x0","conv"])"}) {
      cases.push_back({fmt::format(R"([
          {{"name":"other","type":"conv2d","out_channels":{0},"kernel":1}},
          {{"name":"conv","type":"conv2d","out_channels":{0},"kernel":3,"padding":1,"bias":false,
            "inputs":["x0"]}},
          {{"name":"l",{1}}},
          {{"name":"all","type":"flatten"}},
          {{"name":"rest","type":"flatten","inputs":["other"]}},
          {{"name":"both","type":"concat","inputs":["all","rest"]}}])",
                                   channels, layer),
                       {Random({2, channels, 7, 6}, 71)}});
    }
    cases.push_back({fmt::format(R"([
        {{"name":"conv","type":"conv2d","out_channels":{0},"kernel":3}},
        {{"name":"steps","type":"reshape","shape":[{0},24]}},
        {{"name":"swap","type":"transpose","axes":[1,0]}},
        {{"name":"pos","type":"position_embedding"}},
        {{"name":"qkv","type":"linear","out_features":30}},
        {{"name":"attention","type":"attention","heads":2}}])",
                                 channels),
                     {Random({2, 3, 8, 6}, 72)}});
  }
  // A block of a transformer.
  cases.push_back({R"([
      {"name":"words","type":"reshape","shape":[9],"inputs":["x0"]},
      {"name":"embed","type":"embedding","num_embeddings":13,"embedding_dim":20},
      {"name":"pos","type":"position_embedding"},
      {"name":"norm1","type":"layer_norm"},
      {"name":"qkv","type":"linear","out_features":60},
      {"name":"attention","type":"attention","heads":4,"causal":true},
      {"name":"project","type":"linear","out_features":20},
      {"name":"skip1","type":"add","inputs":["project","pos"]},
      {"name":"norm2","type":"layer_norm"},
      {"name":"fc1","type":"linear","out_features":80},
      {"name":"gelu","type":"gelu","approximate":"tanh"},
      {"name":"fc2","type":"linear","out_features":20},
      {"name":"skip2","type":"add","inputs":["fc2","skip1"]},
      {"name":"norm3","type":"layer_norm"},
      {"name":"logits","type":"linear","out_features":13}])",
                   {RandomIndices({3, 3, 3}, 13, 73)}});
  CompareAll(cases);
}

const char* const kChain = R"([
  {"name":"conv1","type":"conv2d","out_channels":17,"kernel":3,"padding":1,"bias":false},
  {"name":"bn1","type":"batch_norm"},
  {"name":"relu1","type":"relu"},
  {"name":"pool1","type":"max_pool2d","kernel":2},
  {"name":"conv2","type":"conv2d","out_channels":20,"kernel":3},
  {"name":"lrn","type":"lrn","alpha":0.5},
  {"name":"relu2","type":"tanh"},
  {"name":"drop","type":"dropout","p":0.25},
  {"name":"flat","type":"flatten"},
  {"name":"fc1","type":"linear","out_features":33},
  {"name":"sig","type":"sigmoid"},
  {"name":"fc2","type":"linear","out_features":10},
  {"name":"loss","type":"softmax_cross_entropy","inputs":["fc2","x1"]}])";

std::vector<Tensor> ChainInputs(int64_t batch) {
  return {Random({batch, 3, 10, 8}, 31), RandomLabels(batch, 10, 32)};
}

TEST_CASE("chains in which each layer reads the layout of the one before agree with the oracle",
          "[cpu][compare]") {
  std::vector<CompareCase> cases;
  for (const int64_t batch : {1, 3, 17, 64}) cases.push_back({kChain, ChainInputs(batch)});
  // Branches with odd channel counts that meet, and values with several consumers.
  for (const int64_t batch : {1, 5}) {
    cases.push_back({R"([
        {"name":"a","type":"conv2d","out_channels":17,"kernel":1},
        {"name":"b","type":"conv2d","out_channels":3,"kernel":3,"padding":1,"inputs":["x0"]},
        {"name":"cat","type":"concat","inputs":["a","b","x0"]},
        {"name":"c","type":"conv2d","out_channels":16,"kernel":3,"padding":1},
        {"name":"d","type":"conv2d","out_channels":16,"kernel":1,"inputs":["cat"]},
        {"name":"sum","type":"add","inputs":["c","d"]},
        {"name":"bn","type":"batch_norm"},
        {"name":"relu","type":"relu"},
        {"name":"again","type":"add","inputs":["relu","c","d"]},
        {"name":"cat2","type":"concat","inputs":["again","a"]},
        {"name":"pool","type":"avg_pool2d","kernel":3,"stride":2,"padding":1},
        {"name":"g","type":"global_avg_pool2d"},
        {"name":"flat","type":"flatten"},
        {"name":"fc","type":"linear","out_features":7}])",
                     {Random({batch, 5, 9, 7}, 41)}});
  }
  // Depthwise, then pointwise, then a residual over both.
  cases.push_back({R"([
      {"name":"in","type":"conv2d","out_channels":20,"kernel":3,"padding":1},
      {"name":"dw","type":"conv2d","out_channels":20,"kernel":3,"padding":1,"groups":20,"bias":false},
      {"name":"bn","type":"batch_norm"},
      {"name":"relu","type":"relu"},
      {"name":"pw","type":"conv2d","out_channels":20,"kernel":1,"bias":false},
      {"name":"sum","type":"add","inputs":["pw","in"]},
      {"name":"pool","type":"max_pool2d","kernel":3,"stride":2,"padding":1},
      {"name":"fc","type":"linear","out_features":5}])",
                   {Random({3, 3, 8, 9}, 51)}});
  // A linear layer on rows of three dimensions between flat ones.
  cases.push_back({R"([
      {"name":"fc1","type":"linear","out_features":20},
      {"name":"relu","type":"relu"},
      {"name":"flat","type":"flatten"},
      {"name":"fc2","type":"linear","out_features":3}])",
                   {Random({17, 3, 5}, 61)}});
  CompareAll(cases);
}

TEST_CASE("parameters keep the layout of another minibatch size, and give the same results",
          "[cpu][compare]") {
  for (const std::string& kind : Kinds()) {
    if (kind == "ref64") continue;
    const auto backend = MakeBackend(kind, 1);
    const Graph first(*backend, kChain, ChainInputs(64));
    for (const int64_t batch : {17, 1}) Compare(*backend, {kChain, ChainInputs(batch)}, &first);
    // Channel counts that fill blocks.
    const std::string wide = R"([
        {"name":"conv","type":"conv2d","out_channels":64,"kernel":3,"padding":1},
        {"name":"dw","type":"conv2d","out_channels":64,"kernel":3,"groups":64},
        {"name":"relu","type":"relu"},
        {"name":"flat","type":"flatten"},
        {"name":"fc","type":"linear","out_features":128}])";
    const Graph wide_first(*backend, wide, {Random({64, 32, 6, 6}, 1)});
    for (const int64_t batch : {17, 1}) {
      Compare(*backend, {wide, {Random({batch, 32, 6, 6}, 2)}}, &wide_first);
    }
  }
}

}  // namespace
}  // namespace pd::test
