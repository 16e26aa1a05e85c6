#include <atomic>
#include <cstdlib>
#include <new>

#include "backend/graph.h"
#include "support/catch.h"

namespace {

std::atomic<long> g_allocations{0};

void* Counted(std::size_t bytes) noexcept {
  ++g_allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

// The whole program's, so that nothing escapes the count; new[] and the sized deletes come here
// too.
void* operator new(std::size_t bytes) {
  void* data = Counted(bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return Counted(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }

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
      {"name":"flat","type":"flatten"},
      {"name":"fc","type":"linear","out_features":5},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","x1"]}])";
  const std::vector<Tensor> x = {Random({3, 2, 8, 9}, 1), RandomLabels(3, 5, 2)};
  for (const char* kind : {"ref", "ref64"}) {
    const auto backend = MakeBackend(kind, 1);
    Graph graph(*backend, layers, x);
    Graph::Slot* slot = graph.MakeSlot();
    graph.Load(slot, x);
    const long before = g_allocations;
    graph.RunForward(slot, 0, true);
    graph.RunBackward(slot);
    graph.RunForward(slot, 0, false);
    const long after = g_allocations;
    CHECK(before > 0);
    CHECK(after == before);
  }
}

}  // namespace
}  // namespace pd::test
