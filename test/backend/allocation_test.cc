#include "backend/graph.h"
#include "support/allocations.h"
#include "support/catch.h"

namespace pd::test {
namespace {

// Of the backends whose libraries allocate nothing on their own.
TEST_CASE("no operation of ref allocates in forward or backward", "[allocation]") {
  const std::string layers = R"([
      {"name":"conv","type":"conv2d","out_channels":4,"kernel":3,"padding":1},
      {"name":"bn","type":"batch_norm"},
      {"name":"relu","type":"relu"},
      {"name":"max","type":"max_pool2d","kernel":2},
      {"name":"lrn","type":"lrn"},
      {"name":"tanh","type":"tanh"},
      {"name":"avg","type":"avg_pool2d","kernel":2},
      {"name":"sigmoid","type":"sigmoid"},
      {"name":"drop","type":"dropout"},
      {"name":"add","type":"add","inputs":["drop","sigmoid"]},
      {"name":"cat","type":"concat","inputs":["add","avg"]},
      {"name":"swap","type":"transpose","axes":[1,0,2]},
      {"name":"pad","type":"pad","before":[0,1,0],"after":[1,0,2]},
      {"name":"slice","type":"slice","axis":1,"begin":1,"end":4},
      {"name":"steps","type":"reshape","shape":[3,12]},
      {"name":"embed","type":"embedding","num_embeddings":5,"embedding_dim":12,"inputs":["x1"]},
      {"name":"word","type":"reshape","shape":[1,12]},
      {"name":"sequence","type":"concat","inputs":["steps","word"]},
      {"name":"pos","type":"position_embedding"},
      {"name":"norm","type":"layer_norm"},
      {"name":"gelu","type":"gelu"},
      {"name":"attention","type":"attention","heads":2,"causal":true},
      {"name":"flat","type":"flatten"},
      {"name":"fc","type":"linear","out_features":5},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","x1"]}])";
  const std::vector<Tensor> x = {Random({3, 2, 8, 9}, 1), RandomLabels(3, 5, 2)};
  for (const char* kind : {"ref", "ref64"}) {
    const auto backend = MakeBackend(kind, 1);
    Graph graph(*backend, layers, x);
    Graph::Slot* slot = graph.MakeSlot();
    graph.Load(slot, x);
    const int64_t before = AllocationsOfAllThreads();
    graph.RunForward(slot, 0, true);
    graph.RunBackward(slot);
    graph.RunForward(slot, 0, false);
    const int64_t after = AllocationsOfAllThreads();
    CHECK(before > 0);
    CHECK(after == before);
  }
}

}  // namespace
}  // namespace pd::test
