#include <string>
#include <vector>

#include "backend/graph.h"
#include "base/error.h"
#include "cuda_emulator/control.h"
#include "support/catch.h"
#include "support/error_of.h"

// What only an emulation can count, limit or make fail.

namespace pd::test {
namespace {

const char* const kEveryLayer = R"([
    {"name":"conv","type":"conv2d","out_channels":4,"kernel":3,"padding":1},
    {"name":"bn","type":"batch_norm"},
    {"name":"relu","type":"relu"},
    {"name":"max","type":"max_pool2d","kernel":2},
    {"name":"lrn","type":"lrn"},
    {"name":"tanh","type":"tanh"},
    {"name":"avg","type":"avg_pool2d","kernel":2},
    {"name":"sigmoid","type":"sigmoid"},
    {"name":"drop","type":"dropout"},
    {"name":"add","type":"add","inputs":["drop","sigmoid","avg"]},
    {"name":"cat","type":"concat","inputs":["add","avg"]},
    {"name":"pad","type":"pad","before":[0,1,0],"after":[0,0,1]},
    {"name":"slice","type":"slice","axis":1,"end":2},
    {"name":"steps","type":"reshape","shape":[8,6]},
    {"name":"swap","type":"transpose","axes":[1,0]},
    {"name":"embed","type":"embedding","num_embeddings":5,"embedding_dim":8,"inputs":["x1"]},
    {"name":"word","type":"reshape","shape":[1,8]},
    {"name":"words","type":"concat","inputs":["swap","word"]},
    {"name":"pos","type":"position_embedding"},
    {"name":"norm","type":"layer_norm"},
    {"name":"gelu","type":"gelu"},
    {"name":"qkv","type":"linear","out_features":12},
    {"name":"attention","type":"attention","heads":2},
    {"name":"flat","type":"flatten"},
    {"name":"fc","type":"linear","out_features":5},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","x1"]}])";

std::vector<Tensor> Inputs() { return {Random({3, 2, 8, 9}, 1), RandomLabels(3, 5, 2)}; }

TEST_CASE("forward, backward and update on cuda allocate nothing and wait for nothing",
          "[cuda][allocation]") {
  const auto backend = MakeBackend("cuda", 1);
  Graph graph(*backend, kEveryLayer, Inputs());
  Graph::Slot* slot = graph.MakeSlot();
  graph.Load(slot, Inputs());
  const Buffer w = backend->Allocate(400);
  const Buffer g = backend->Allocate(400);
  const Buffer m = backend->Allocate(400);
  const uint64_t allocations = cuda_emulator::AllocationCount();
  const uint64_t waits = cuda_emulator::SynchronizeCount();
  const uint64_t calls = cuda_emulator::CallCount();
  for (int step = 0; step < 2; ++step) {
    graph.RunForward(slot, 0, true);
    graph.RunBackward(slot);
    graph.RunForward(slot, 0, false);
    SgdArgs args{.w = w.data(), .g = g.data(), .m = m.data(), .w_out = w.data(), .count = 100};
    args.momentum = 0.9;
    backend->Sgd(args);
  }
  CHECK(cuda_emulator::AllocationCount() == allocations);
  CHECK(cuda_emulator::SynchronizeCount() == waits);
  CHECK(cuda_emulator::CallCount() > calls);
}

TEST_CASE("a backend leaves no memory and no handle, even with work queued", "[cuda]") {
  {
    const auto backend = MakeBackend("cuda", 1);
    Graph graph(*backend, kEveryLayer, Inputs());
    Graph::Slot* slot = graph.MakeSlot();
    graph.Forward(slot, Inputs());
    graph.RunBackward(slot);
    CHECK(!cuda_emulator::Leaks().empty());
  }
  CHECK(cuda_emulator::Leaks() == std::vector<std::string>{});
  CHECK(cuda_emulator::TakeMisuses() == std::vector<std::string>{});
}

TEST_CASE("too little memory of the device is an error that names the bytes wanted and free",
          "[cuda]") {
  cuda_emulator::SetMemoryLimit(size_t{64} << 20);
  {
    const auto backend = MakeBackend("cuda", 1);
    const std::string refusal =
        ErrorOf([&] { backend->Allocate(size_t{60} << 20); }, ErrorCode::kDevice);
    CHECK_THAT(refusal, ContainsSubstring("cannot allocate 62914560 bytes") &&
                            ContainsSubstring("of 67108864 bytes are free"));
    CHECK(backend->Allocate(1 << 20).bytes() == 1 << 20);
  }
  cuda_emulator::Reset();
}

// The emulated cuDNN's algorithms come largest workspace first, and one kind of algorithm takes a
// few bytes more or less in each pass. So ever smaller limits let one pass after another find room.
TEST_CASE("a convolution's workspace holds whichever of its passes needs the most", "[cuda]") {
  const std::string layers =
      R"([{"name":"c","type":"conv2d","out_channels":3,"kernel":2,"bias":false}])";
  const Tensor x = Random({8, 2, 6, 6}, 1);
  const Tensor dy = Random({8, 3, 5, 5}, 2);
  OpRequest request;
  request.x.push_back(DenseLayout(x.shape, DType::kF32));
  std::vector<Tensor> first;
  size_t limit = size_t{1} << 20;
  int by_data = 0, by_others = 0;
  while (true) {
    INFO("limit " << limit);
    const auto backend =
        MakeBackend("cuda", BackendOptions{.threads = 1, .workspace_limit_bytes = limit});
    const auto needed = [&](bool wants_dx) {
      request.wants_dx.assign(1, wants_dx);
      const Conv2dDesc desc{.out_channels = 3, .kernel = {2, 2}, .bias = false};
      return backend->PlanConv2d(desc, request)->info().workspace_bytes;
    };
    size_t bytes = 0;
    try {
      bytes = needed(true);
    } catch (const Error&) {
      break;  // no algorithm is left
    }
    REQUIRE(bytes > 0);
    ++(bytes > needed(false) ? by_data : by_others);
    Graph graph(*backend, layers, {x});
    Graph::Slot* slot = graph.MakeSlot();
    graph.Forward(slot, {x});
    graph.Backward(slot, dy);
    const std::vector<Tensor> all = {graph.Output(slot), graph.InputGradient(slot, 0),
                                     graph.ParamGradient(slot, "c.weight")};
    if (first.empty()) first = all;
    for (size_t i = 0; i < all.size(); ++i) CheckClose(all[i], first[i], 1e-5, 1e-5, "result");
    limit = bytes - 1;
  }
  CHECK(by_data > 0);
  CHECK(by_others > 1);
  CHECK(cuda_emulator::TakeMisuses() == std::vector<std::string>{});
}

TEST_CASE("local ranks take the devices in turn, and cuda:N takes the N-th", "[cuda]") {
  cuda_emulator::SetDeviceCount(2);
  const auto id = [](const char* kind, int local_rank) {
    return MakeBackend(kind, BackendOptions{.threads = 1, .local_rank = local_rank})->device_id();
  };
  CHECK(id("cuda", 0) != id("cuda", 1));
  CHECK(id("cuda", 2) == id("cuda", 0));
  CHECK(id("auto", 3) == id("cuda", 1));
  CHECK(id("cuda:1", 0) == id("cuda", 1));
  CHECK_THAT(ErrorOf([&] { id("cuda:2", 0); }),
             ContainsSubstring("\"cuda:2\": expected cuda:N with N from 0 to 1"));
  cuda_emulator::SetDeviceCount(1);
  CHECK_THAT(ErrorOf([&] { id("cuda:1", 0); }), ContainsSubstring("\"cuda:1\": expected cuda:0,"));
  cuda_emulator::SetDeviceCount(0);
  CHECK_THAT(ErrorOf([&] { id("cuda", 0); }), ContainsSubstring("no CUDA device"));
  cuda_emulator::Reset();
}

TEST_CASE("a device at work is no failed one", "[cuda]") {
  cuda_emulator::SetSchedule(
      {.mode = cuda_emulator::Mode::kScheduled, .policy = cuda_emulator::Policy::kLazy});
  {
    const auto backend = MakeBackend("cuda", 1);
    const Buffer a = backend->Allocate(400);
    const Buffer b = backend->Allocate(400);
    backend->Copy(a.data(), b.data(), 400);
    backend->CheckDevice();
    backend->Accumulate(a.data(), b.data(), 100);
  }
  cuda_emulator::Reset();
}

TEST_CASE("a device that failed gives no notice, and says so when asked", "[cuda]") {
  const auto backend = MakeBackend("cuda", 1);
  cuda_emulator::FailDevice();
  bool noticed = false;
  const Notice notice = [](void* to) { *static_cast<bool*>(to) = true; };
  backend->Notify(Queue::kDownload, notice, &noticed);
  cuda_emulator::Drain();
  CHECK_FALSE(noticed);
  CHECK_THAT(ErrorOf([&] { backend->CheckDevice(); }, ErrorCode::kDevice),
             ContainsSubstring("cudaErrorLaunchFailure"));
  cuda_emulator::Reset();
  backend->Notify(Queue::kDownload, notice, &noticed);
  const auto mark = backend->MakeMark();
  backend->Record(Queue::kDownload, *mark, "test");
  backend->WaitOnHost(*mark, "test");
  CHECK(noticed);
}

TEST_CASE("whichever call fails, an error says so and nothing is left behind", "[cuda]") {
  const std::string layers = R"([
      {"name":"conv","type":"conv2d","out_channels":2,"kernel":3},
      {"name":"bn","type":"batch_norm"},
      {"name":"lrn","type":"lrn"},
      {"name":"flat","type":"flatten"},
      {"name":"fc","type":"linear","out_features":5},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","x1"]}])";
  const std::vector<Tensor> x = {Random({2, 1, 4, 4}, 1), RandomLabels(2, 5, 2)};
  // ThreadSanitizer keeps a record of all memory that ever was: a few calls are enough for it.
#if defined(__SANITIZE_THREAD__)
  constexpr uint64_t kStep = 23;
#else
  constexpr uint64_t kStep = 1;
#endif
  uint64_t thrown = 0;
  for (uint64_t n = 1;; n += kStep) {
    INFO("call " << n);
    cuda_emulator::FailCall(n);
    try {
      const auto backend = MakeBackend("cuda", 1);
      Graph graph(*backend, layers, x);
      Graph::Slot* slot = graph.MakeSlot();
      graph.Forward(slot, x);
      graph.RunBackward(slot);
      graph.Output(slot);
    } catch (const Error& error) {
      ++thrown;
      CHECK(std::string(error.what()).size() > 10);
    }
    const bool failed = cuda_emulator::CallFailed();
    cuda_emulator::FailCall(0);
    CHECK(cuda_emulator::Leaks() == std::vector<std::string>{});
    CHECK(cuda_emulator::TakeMisuses() == std::vector<std::string>{});
    if (!failed) break;
  }
  CHECK(thrown > 50 / kStep);
  cuda_emulator::Reset();
}

}  // namespace
}  // namespace pd::test
