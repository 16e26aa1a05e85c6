#include <fmt/format.h>

#include "backend/graph.h"
#include "support/catch.h"

// Several minibatches between forward and backward at once, as a pipeline has them.

namespace pd::test {
namespace {

struct Result {
  Tensor y;
  std::vector<Tensor> gradients;
};

std::vector<Tensor> InputsOf(uint64_t minibatch) {
  return {Random({5, 3, 6, 7}, 100 + minibatch), RandomLabels(5, 4, 200 + minibatch)};
}

Result ReadBack(const Graph& graph, const Graph::Slot* slot) {
  Result result;
  result.y = graph.Output(slot);
  result.gradients.push_back(graph.InputGradient(slot, 0));
  for (const std::string& name : graph.TrainableNames()) {
    result.gradients.push_back(graph.ParamGradient(slot, name));
  }
  return result;
}

void CheckSame(const Result& actual, const Result& expected, const std::string& what) {
  CheckEqual(actual.y, expected.y, what + ", output");
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    CheckEqual(actual.gradients[i], expected.gradients[i], fmt::format("{}, gradient {}", what, i));
  }
}

/// Four minibatches one after the other, and then all forward before the first backward.
void CheckInFlight(Backend& backend, const std::string& layers) {
  constexpr uint64_t kMinibatches = 4;
  Graph graph(backend, layers, InputsOf(0));
  Graph::Slot* alone = graph.MakeSlot();
  std::vector<Result> expected;
  std::vector<Tensor> dy;
  for (uint64_t b = 0; b < kMinibatches; ++b) {
    graph.Forward(alone, InputsOf(b), b);
    dy.push_back(Random(graph.Output(alone).shape, 300 + b, -1, 1));
    graph.Backward(alone, dy.back());
    expected.push_back(ReadBack(graph, alone));
  }
  std::vector<Graph::Slot*> slots;
  for (uint64_t b = 0; b < kMinibatches; ++b) {
    slots.push_back(graph.MakeSlot());
    graph.Forward(slots[b], InputsOf(b), b);
  }
  for (uint64_t b = 0; b < kMinibatches; ++b) {
    graph.Backward(slots[b], dy[b]);
    CheckSame(ReadBack(graph, slots[b]), expected[b], fmt::format("minibatch {}", b));
  }
}

TEST_CASE("minibatches in flight do not disturb each other", "[in_flight]") {
  std::vector<std::string> all;
  for (const std::string layer :
       {R"("type":"max_pool2d","kernel":3,"stride":2)", R"("type":"avg_pool2d","kernel":2)",
        R"("type":"dropout")", R"("type":"batch_norm")", R"("type":"lrn","alpha":1)",
        R"("type":"relu")", R"("type":"tanh")", R"("type":"sigmoid")",
        R"("type":"linear","out_features":9)", R"("type":"gelu")", R"("type":"layer_norm")",
        R"("type":"slice","axis":1,"begin":1,"end":4)", R"("type":"transpose","axes":[2,0,1])",
        R"("type":"pad","before":[1,0,2],"after":[0,1,0])", R"("type":"reshape","shape":[6,21])",
        R"("type":"conv2d","out_channels":5,"kernel":3,"padding":1)"}) {
    all.push_back(fmt::format(R"([{{"name":"l",{}}}])", layer));
  }
  all.push_back(R"([{"name":"c","type":"conv2d","out_channels":17,"kernel":3},
                    {"name":"bn","type":"batch_norm"},
                    {"name":"relu","type":"relu"},
                    {"name":"pool","type":"max_pool2d","kernel":2},
                    {"name":"drop","type":"dropout","p":0.3},
                    {"name":"lrn","type":"lrn"},
                    {"name":"flat","type":"flatten"},
                    {"name":"fc","type":"linear","out_features":4},
                    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","x1"]}])");
  // The labels are words, too.
  all.push_back(R"([{"name":"words","type":"embedding","num_embeddings":4,"embedding_dim":42,
                     "inputs":["x1"]},
                    {"name":"word","type":"reshape","shape":[1,42]},
                    {"name":"image","type":"reshape","shape":[3,42],"inputs":["x0"]},
                    {"name":"steps","type":"concat","inputs":["word","image"]},
                    {"name":"pos","type":"position_embedding"},
                    {"name":"norm","type":"layer_norm"},
                    {"name":"qkv","type":"linear","out_features":18},
                    {"name":"attention","type":"attention","heads":2,"causal":true},
                    {"name":"gelu","type":"gelu"},
                    {"name":"flat","type":"flatten"},
                    {"name":"fc","type":"linear","out_features":4},
                    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","x1"]}])");
  for (const std::string& kind : Kinds()) {
    const auto backend = MakeBackend(kind, 1);
    for (const std::string& layers : all) {
      INFO(kind << " " << layers);
      CheckInFlight(*backend, layers);
    }
  }
}

}  // namespace
}  // namespace pd::test
