#include "partition/cost.h"

#include "base/error.h"
#include "support/catch.h"

namespace pd {
namespace {

// a ─▶ b ─▶ c ─▶ d, and a is read by d as well.
std::vector<LayerCost> Skip() {
  std::vector<LayerCost> layers(4);
  const char* const names[] = {"a", "b", "c", "d"};
  for (size_t l = 0; l < 4; ++l) {
    layers[l].name = names[l];
    layers[l].forward_ms = 1;
    layers[l].backward_ms = 2;
    layers[l].update_ms = 0.5;
    layers[l].parameter_bytes = 100;
  }
  layers[0].activation_bytes = 1000;
  layers[1].activation_bytes = 200;
  layers[2].activation_bytes = 30;
  layers[0].inputs = {"image"};
  layers[1].inputs = {"a"};
  layers[2].inputs = {"b"};
  layers[3].inputs = {"c", "a", "label"};
  return layers;
}

TEST_CASE("a tensor counts once in its producer's stage and once in each stage that reads it") {
  const CostGraph graph = MakeCostGraph(Skip());
  const auto sums = [&](const std::vector<int>& layers) { return SumsOf(graph, layers, false); };
  CHECK(sums({0}).out_bytes == 1000);  // {a}: b and d read it.
  CHECK(sums({0, 1}).out_bytes == 1200);
  CHECK(sums({0, 1, 2}).out_bytes == 1030);
  CHECK(sums({0, 1, 2, 3}).out_bytes == 0);
  CHECK(sums({2}).in_bytes == 200);         // {c} does not read a.
  CHECK(sums({2, 3}).in_bytes == 1200);     // {c, d} reads b and a.
  CHECK(sums({1, 2, 3}).in_bytes == 1000);  // {b, c, d} reads a twice.
}

TEST_CASE("parameters count as the device stores them, where a profile says so") {
  std::vector<LayerCost> layers = Skip();
  layers[1].stored_parameter_bytes = 128;
  CHECK(SumsOf(MakeCostGraph(layers), {0, 1}, false).parameter_bytes == 228);
}

TEST_CASE("gradients are counted as they are sent: the last consumers' sum, others one each") {
  const CostGraph graph = MakeCostGraph(Skip());
  const auto sums = [&](const std::vector<int>& layers) { return SumsOf(graph, layers, false); };
  CHECK(sums({1, 2, 3}).in_gradient_bytes == 1000);  // One sum of b's and d's for a.
  CHECK(sums({1, 2}).in_gradient_bytes == 1000);
  CHECK(sums({2, 3}).in_gradient_bytes == 1200);
  CHECK(sums({0, 1}).out_gradient_bytes == 1200);
  // x is read by a, b and c: a stage of a and b sends two gradients beside c's.
  std::vector<LayerCost> layers(4);
  for (size_t l = 0; l < 4; ++l) {
    layers[l].name = std::string(1, "xabc"[l]);
    layers[l].forward_ms = 1;
    layers[l].activation_bytes = 10;
    layers[l].inputs = {l == 0 ? "image" : "x"};
  }
  CHECK(SumsOf(MakeCostGraph(layers), {1, 2}, false).in_gradient_bytes == 0);  // No parameters.
  layers[0].parameter_bytes = 1;
  CHECK(SumsOf(MakeCostGraph(layers), {1, 2}, false).in_gradient_bytes == 20);
  CHECK(SumsOf(MakeCostGraph(layers), {1, 3}, false).in_gradient_bytes == 20);
  CHECK(SumsOf(MakeCostGraph(layers), {2, 3}, false).in_gradient_bytes == 10);
}

TEST_CASE("an all-reduce follows the forward pass and its first bucket, inside machines first") {
  // Weights 200 in one bucket: behind the backward pass.
  const StageSums ab = SumsOf(MakeCostGraph(Skip()), {0, 1}, true);
  CostRule rule{CostModel::kRuntime, 100, {{4, 100, 0.25}, {2, 50, 3}}};
  // Four replicas: 2 · 3/4 · 200 at 100 a ms, two latencies, forward 2, backward 4, update 1.
  CHECK(rule.AllReducePs(ab, 0, 4, 1, false) == Approx((7 + 3 + 0.5) / 4 * kPsPerMs));
  CHECK(rule.AllReducePs(ab, 0, 4, 0.5, false) == Approx((14 + 3 + 0.5) / 4 * kPsPerMs));
  CHECK(rule.AllReducePs(ab, 0, 4, 1, true) == Approx((9 + 3 + 0.5) / 4 * kPsPerMs));
  // Two of them on each machine: 2 · 1/2 · 200 at 50 a ms, behind what moves inside.
  CHECK(rule.AllReducePs(ab, 2, 4, 1, false) == Approx((7 + 4 + 6.5) / 4 * kPsPerMs));
  // One and three: pair by pair, 2 · 3/4 · 200 at 50 a ms.
  CHECK(rule.AllReducePs(ab, 3, 4, 1, false) == Approx((7 + 6 + 6) / 4.0 * kPsPerMs));
  CHECK(rule.AllReducePs(ab, 0, 1, 1, false) == 0);
  // Buckets of 1 MiB each: the last layer's is ready after 2 of 4 ms, and all follow it; or the
  // first layer's behind the backward pass.
  std::vector<LayerCost> heavy = Skip();
  heavy[0].parameter_bytes = heavy[1].parameter_bytes = 1 << 20;
  const StageSums large = SumsOf(MakeCostGraph(heavy), {0, 1}, true);
  rule.levels = {{4, 1 << 18, 0}};
  rule.bytes_per_ms = 1 << 18;
  CHECK(rule.AllReducePs(large, 0, 2, 1, false) == Approx((2 + 2 + 8 + 0.5) / 2 * kPsPerMs));
  // The first bucket's parts wait under the last one's transfer: one latency, not two.
  rule.levels[0].latency_ms = 0.5;
  CHECK(rule.AllReducePs(large, 0, 2, 1, false) == Approx((2 + 2 + 8 + 0.5 + 0.5) / 2 * kPsPerMs));
  rule.levels[0].latency_ms = 0;
  rule.levels[0].bytes_per_ms = rule.bytes_per_ms = 4 << 20;
  CHECK(rule.AllReducePs(large, 0, 2, 1, false) == Approx((2 + 4 + 0.25 + 0.5) / 2 * kPsPerMs));
}

TEST_CASE("a border is crossed by every tensor that lives over it") {
  const CostGraph graph = MakeCostGraph(Skip());
  CHECK(CrossingBytes(graph, {false, false, false, false}) == 0);
  CHECK(CrossingBytes(graph, {true, false, false, false}) == 1000);
  CHECK(CrossingBytes(graph, {true, true, false, false}) == 1200);
  CHECK(CrossingBytes(graph, {true, true, true, false}) == 1030);
  CHECK(CrossingBytes(graph, {true, true, true, true}) == 0);
}

TEST_CASE("stage and border costs are the papers' formulas") {
  const CostGraph graph = MakeCostGraph(Skip());
  const StageSums ab = SumsOf(graph, {0, 1}, true);
  const CostRule runtime{CostModel::kRuntime, 100};
  CHECK(runtime.ComputeMs(ab, 2) == Approx(7.0 / 2));
  // Out 1200; all-reduce 2 · (2−1)/2 · 200; per minibatch half of a round.
  CHECK(runtime.LinkMs(ab, 2) == Approx((1200 + 200.0) / 100 / 2));
  CHECK(runtime.BorderMs(1200) == 0);
  const CostRule arxiv{CostModel::kArxiv, 100};
  CHECK(arxiv.ComputeMs(ab, 2) == Approx(6.0 / 2));
  CHECK(arxiv.LinkMs(ab, 2) == Approx(4.0 * 1 * 200 / (2 * 100) / 2));
  CHECK(arxiv.BorderMs(1200) == Approx(24));
}

TEST_CASE("memory counts versions, stashes, inputs, gradients, momentum, scratch and buffers") {
  std::vector<LayerCost> layers = Skip();
  layers[2].stash_bytes = 7;
  layers[2].workspace_bytes = 11;
  layers[1].copy_bytes = 240;
  const CostGraph graph = MakeCostGraph(layers);
  // {c}: in 200, out 30, weights 100. Its gradient, b's in the device's order, and a's that waits.
  const int64_t fixed = 100 + 100 + 32 * 100 + 2 * 200 /* ahead */ +
                        2 * (30 + 200) /* gradients */ + 30 + 240 + 1000 + 11;
  const MemoryEstimate memory(SumsOf(graph, {2}, false), 2);
  CHECK(memory.Bytes(3) == 3 * (100 + 200 + 30 + 7 + 240) + fixed);
  // {b}: in 1000, out 200; its output's copy is not in its stash of 150, or is, in one of 240.
  layers[1].stash_bytes = 150;
  const MemoryEstimate copies(SumsOf(MakeCostGraph(layers), {1}, false), 1);
  CHECK(copies.each == 100 + 1000 + 200 + 150 + 240);
  layers[1].stash_bytes = 240;
  const MemoryEstimate stashes(SumsOf(MakeCostGraph(layers), {1}, false), 1);
  CHECK(stashes.each == 100 + 1000 + 200 + 240);
  // In the messages' order the output is kept in its message alone.
  layers[1].copy_bytes.reset();
  const MemoryEstimate dense(SumsOf(MakeCostGraph(layers), {1}, false), 1);
  CHECK(dense.each == 100 + 1000 + 200 + 40);
  const MemoryEstimate recomputing(SumsOf(graph, {2}, false), 2, true);
  CHECK(recomputing.Bytes(3) == 3 * (100 + 200 + 30) + 7 + 240 + fixed);
  CHECK(memory.MaxInFlight(memory.Bytes(3), 100) == 3);
  CHECK(memory.MaxInFlight(memory.Bytes(3) - 1, 100) == 2);
  CHECK(memory.MaxInFlight(memory.Bytes(0) - 1, 100) == 0);
  CHECK(memory.MaxInFlight(INT64_MAX, 5) == 5);
}

TEST_CASE("an all-reduce takes 32 parts of at most 60 KiB from each replica") {
  std::vector<LayerCost> layers = Skip();
  for (LayerCost& layer : layers) layer.parameter_bytes = 1 << 20;
  const StageSums all = SumsOf(MakeCostGraph(layers), {0, 1, 2, 3}, true);
  CHECK(MemoryEstimate(all, 4).fixed - MemoryEstimate(all, 1).fixed == 32 * 4 * (60 << 10));
  // A bucket of a layer and less than 256 KiB before it.
  CHECK(MemoryEstimate(all, 64).fixed - MemoryEstimate(all, 1).fixed ==
        32 * ((1 << 20) + (256 << 10)));
}

TEST_CASE("graph inputs of known size take memory where they are read, all of them in stage 0") {
  const CostGraph graph = MakeCostGraph(Skip(), {{"image", 5000}, {"label", 7}});
  const CostGraph without = MakeCostGraph(Skip());
  CHECK(SumsOf(graph, {0}, true).graph_input_bytes == 5007);
  CHECK(SumsOf(graph, {1, 2}, false).graph_input_bytes == 0);
  CHECK(SumsOf(graph, {1, 2, 3}, false).graph_input_bytes == 7);
  CHECK(SumsOf(graph, {1, 2, 3}, false).in_bytes == SumsOf(without, {1, 2, 3}, false).in_bytes);
  const auto bytes = [](const CostGraph& of) {
    return MemoryEstimate(SumsOf(of, {0}, true), 1).Bytes(3);
  };
  CHECK(bytes(graph) - bytes(without) == (3 + 2) * 5007);
}

TEST_CASE("profiles whose times add up to nothing or to the absurd are refused") {
  std::vector<LayerCost> layers = Skip();
  for (LayerCost& layer : layers) layer.forward_ms = 9e8;
  CHECK_THROWS_WITH(MakeCostGraph(layers), ContainsSubstring("at most"));
  for (LayerCost& layer : layers) {
    layer.forward_ms = layer.backward_ms = 0;
    layer.update_ms.reset();
  }
  CHECK_THROWS_WITH(MakeCostGraph(layers), ContainsSubstring("more than nothing"));
  layers = Skip();
  layers[0].parameter_bytes = 1'000'000'000'000'000'000;
  CHECK_THROWS_WITH(MakeCostGraph(layers), ContainsSubstring("bytes: expected at most"));
}

}  // namespace
}  // namespace pd
