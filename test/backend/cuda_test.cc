#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "backend/graph.h"
#include "backend/registry.h"
#include "base/error.h"
#include "support/catch.h"
#include "support/error_of.h"

// What only the cuda backend promises, on a GPU or on the emulation. All suites of this folder run
// on it too; without a GPU this one has nothing to do (backend_test.cc says so).

namespace pd::test {
namespace {

const char* const kConv =
    R"([{"name":"c","type":"conv2d","out_channels":24,"kernel":5,"padding":2}])";

TEST_CASE("a convolution keeps to the workspace limit, or is refused with it", "[cuda]") {
  if (!WhyNoCuda().empty()) return;
  for (const size_t limit : {size_t{0}, size_t{100000}, size_t{1} << 20, size_t{1} << 30}) {
    const auto backend =
        MakeBackend("cuda", BackendOptions{.threads = 1, .workspace_limit_bytes = limit});
    OpRequest request;
    request.x.push_back(DenseLayout({16, 12, 30, 30}, DType::kF32));
    request.wants_dx.push_back(true);
    const Conv2dDesc desc{.out_channels = 24, .kernel = {5, 5}, .padding = {2, 2}};
    try {
      const auto op = backend->PlanConv2d(desc, request);
      CHECK(op->info().workspace_bytes <= limit);
    } catch (const Error& error) {
      CHECK(limit < size_t{1} << 30);
      CHECK(error.code() == ErrorCode::kInvalidInput);
      CHECK_THAT(error.what(), ContainsSubstring(std::to_string(limit) + " bytes of workspace"));
    }
  }
}

TEST_CASE("the same work twice is equal bit for bit", "[cuda]") {
  if (!WhyNoCuda().empty()) return;
  const std::string layers = R"([
      {"name":"c","type":"conv2d","out_channels":24,"kernel":5,"padding":2},
      {"name":"bn","type":"batch_norm"},
      {"name":"relu","type":"relu"},
      {"name":"pool","type":"max_pool2d","kernel":3,"stride":2},
      {"name":"steps","type":"reshape","shape":[24,56]},
      {"name":"pos","type":"position_embedding"},
      {"name":"norm","type":"layer_norm"},
      {"name":"qkv","type":"linear","out_features":60},
      {"name":"attention","type":"attention","heads":4,"causal":true},
      {"name":"gelu","type":"gelu"},
      {"name":"swap","type":"transpose","axes":[1,0]},
      {"name":"flat","type":"flatten"},
      {"name":"fc","type":"linear","out_features":30}])";
  const Tensor x = Random({16, 12, 17, 15}, 1);
  const Tensor dy = Random({16, 30}, 2);
  std::vector<std::vector<Tensor>> runs;
  for (int run = 0; run < 2; ++run) {
    const auto backend = MakeBackend("cuda", 1);
    Graph graph(*backend, layers, {x});
    Graph::Slot* slot = graph.MakeSlot();
    graph.Forward(slot, {x});
    graph.Backward(slot, dy);
    runs.push_back({graph.Output(slot), graph.InputGradient(slot, 0)});
    for (const std::string& name : graph.TrainableNames()) {
      runs.back().push_back(graph.ParamGradient(slot, name));
    }
  }
  for (size_t i = 0; i < runs[0].size(); ++i) CheckEqual(runs[1][i], runs[0][i], "second run");
}

// 5·5 scores of 2 heads take 200 bytes a sample.
TEST_CASE("attention keeps to the workspace limit, with the same results, or is refused with it",
          "[cuda]") {
  if (!WhyNoCuda().empty()) return;
  const std::string layers = R"([{"name":"l","type":"attention","heads":2,"causal":true}])";
  const Tensor x = Random({3, 5, 24}, 1);
  const Tensor dy = Random({3, 5, 8}, 2);
  std::vector<Tensor> gradients;
  for (const size_t limit : {size_t{200}, size_t{599}, size_t{1} << 20}) {
    const auto backend =
        MakeBackend("cuda", BackendOptions{.threads = 1, .workspace_limit_bytes = limit});
    OpRequest request;
    request.x.push_back(DenseLayout(x.shape, DType::kF32));
    request.wants_dx.push_back(true);
    CHECK(backend->PlanAttention({.heads = 2}, request)->info().workspace_bytes <= limit);
    Graph graph(*backend, layers, {x});
    Graph::Slot* slot = graph.MakeSlot();
    graph.Forward(slot, {x});
    graph.Backward(slot, dy);
    gradients.push_back(graph.InputGradient(slot, 0));
    // Batched over the heads in one case and over the samples in the other, but the same products.
    CheckClose(gradients.back(), gradients.front(), 1e-6, 1e-6, "gradient");
  }
  const auto backend =
      MakeBackend("cuda", BackendOptions{.threads = 1, .workspace_limit_bytes = 199});
  CHECK_THAT(ErrorOf([&] { Graph(*backend, layers, {x}); }, ErrorCode::kInvalidInput),
             ContainsSubstring("200 of 199 bytes of workspace"));
}

TEST_CASE("with TF32 allowed results stay within its ten bits", "[cuda]") {
  if (!WhyNoCuda().empty()) return;
  const Tensor x = Random({4, 12, 17, 15}, 1);
  std::vector<Tensor> results;
  for (const bool tf32 : {false, true}) {
    const auto backend = MakeBackend("cuda", BackendOptions{.threads = 1, .tf32 = tf32});
    Graph graph(*backend, kConv, {x});
    Graph::Slot* slot = graph.MakeSlot();
    graph.Forward(slot, {x});
    results.push_back(graph.Output(slot));
  }
  double largest = 0;
  for (const double value : results[0].values) largest = std::max(largest, std::abs(value));
  CheckClose(results[1], results[0], 2e-3 * largest, 0, "with TF32");
}

// TF32's algorithms may copy images into the workspace, here 80 kB; those of full f32 need little.
TEST_CASE("with TF32 allowed no convolution is refused that is accepted without", "[cuda]") {
  if (!WhyNoCuda().empty()) return;
  OpRequest request;
  request.x.push_back(DenseLayout({2, 4, 50, 50}, DType::kF32));
  request.wants_dx.push_back(true);
  const Conv2dDesc desc{.out_channels = 4, .kernel = {3, 3}, .padding = {2, 2}, .dilation = {2, 2}};
  size_t needed = 0;
  for (const bool tf32 : {false, true}) {
    BackendOptions options{.threads = 1, .tf32 = tf32};
    if (tf32) options.workspace_limit_bytes = needed;
    const auto backend = MakeBackend("cuda", options);
    needed = backend->PlanConv2d(desc, request)->info().workspace_bytes;
    if (tf32) CHECK(needed <= options.workspace_limit_bytes);
  }
}

TEST_CASE("what cuDNN cannot do is refused when it is planned, saying why", "[cuda]") {
  if (!WhyNoCuda().empty()) return;
  const auto backend = MakeBackend("cuda", 1);
  OpRequest request;
  request.x.push_back(DenseLayout({2, 20, 3, 3}, DType::kF32));
  request.wants_dx.push_back(true);
  const auto refusal = [&](const LrnDesc& desc) {
    return ErrorOf([&] { backend->PlanLrn(desc, request); }, ErrorCode::kInvalidInput);
  };
  CHECK_THAT(refusal({.size = 17}),
             ContainsSubstring("size is 17") && ContainsSubstring("at most 15"));
  CHECK_THAT(refusal({.size = 4}), ContainsSubstring("size is 4"));
  CHECK_THAT(refusal({.beta = 0}), ContainsSubstring("beta is 0"));
  CHECK_THAT(refusal({.k = 0}), ContainsSubstring("k is 0"));
}

TEST_CASE("libraries and the device are named", "[cuda]") {
  CHECK_THAT(BackendLibraries(), ContainsSubstring("CUDA ") && ContainsSubstring("cuDNN ") &&
                                     ContainsSubstring("cuBLAS "));
  if (!WhyNoCuda().empty()) return;
  const auto backend = MakeBackend("cuda", 1);
  CHECK(backend->on_device());
  CHECK_THAT(backend->device_id(), ContainsSubstring(":"));
}

}  // namespace
}  // namespace pd::test
