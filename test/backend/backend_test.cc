#include "backend/backend.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backend/graph.h"
#include "backend/registry.h"
#include "base/error.h"
#include "support/catch.h"

namespace pd::test {
namespace {

std::string Refusal(std::string_view kind, int threads) {
  try {
    MakeBackend(kind, threads);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInvalidInput);
    return error.what();
  }
  return "accepted";
}

TEST_CASE("an unknown device is refused with the list of known ones", "[backend]") {
  CHECK_THAT(Refusal("gpu", 1), ContainsSubstring("\"gpu\": expected one of "));
  for (const char* kind : {"gpu", "", "Ref", "timed"}) {
    CHECK_THAT(Refusal(kind, 1), ContainsSubstring(", ref") && !ContainsSubstring("ref64") &&
                                     !ContainsSubstring(", timed"));
  }
  CHECK_THAT(Refusal("ref", 0), ContainsSubstring("threads"));
  CHECK_THAT(Refusal("ref", -1), ContainsSubstring("threads"));
}

TEST_CASE("timed is a device, and among the known ones, where it is asked for", "[backend]") {
  CHECK(MakeBackendOrTimed("timed", {})->kind() == "timed");
  CHECK(MakeBackendOrTimed("ref", {})->kind() == "ref");
  try {
    MakeBackendOrTimed("gpu", {});
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInvalidInput);
    CHECK_THAT(error.what(), Catch::Matchers::EndsWith(", timed"));
  }
}

TEST_CASE("a CUDA device is refused where there is none, saying why", "[backend]") {
  const std::string why = WhyNoCuda();
  const std::vector<std::string> kinds = Kinds();
  const bool listed = std::find(kinds.begin(), kinds.end(), "cuda") != kinds.end();
  CHECK(listed == why.empty());
  if (why.empty()) {
    CHECK_THAT(Refusal("cuda:1000", 1), ContainsSubstring("\"cuda:1000\": expected cuda:"));
    for (const char* kind : {"cuda:", "cuda:-1", "cuda:0x0", "cuda: 0", "cuda:0 "}) {
      CHECK_THAT(Refusal(kind, 1), ContainsSubstring("expected cuda:N with N from 0 to") ||
                                       ContainsSubstring("expected cuda:0, the only GPU"));
    }
    return;
  }
  WARN("SKIPPED: device cuda, in all suites: " << why);  // gpu-check looks for it
  for (const char* kind : {"cuda", "cuda:0", "cuda:1"}) {
    CHECK_THAT(Refusal(kind, 1), ContainsSubstring("no CUDA") && ContainsSubstring(why));
  }
  // The runtime would call a driver that is not there too old.
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (why != "this build has no CUDA backend" && driver == nullptr) {
    CHECK(why == "no CUDA device: the driver's libcuda.so.1 is not there");
  }
  if (driver != nullptr) dlclose(driver);
}

TEST_CASE("auto takes a GPU where there is one, else the cpu", "[backend]") {
  const std::vector<std::string> kinds = Kinds();
  for (const char* kind : {"cuda", "cpu"}) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) continue;
    CHECK(MakeBackend("auto", 1)->kind() == kind);
    return;
  }
  CHECK_THAT(Refusal("auto", 1), ContainsSubstring("expected one of ref"));
}

TEST_CASE("a backend says its own kind", "[backend]") {
  for (const std::string& kind : Kinds()) {
    const auto backend = MakeBackend(kind, 1);
    CHECK(backend->kind() == kind);
    CHECK(backend->threads() == 1);
    CHECK(!backend->name().empty());
    CHECK(!backend->libraries().empty());
    CHECK((backend->dtype() == DType::kF64) == (kind == "ref64"));
  }
}

TEST_CASE("memory comes zeroed and aligned to 64 bytes, small and large", "[backend]") {
  for (const std::string& kind : Kinds()) {
    const auto backend = MakeBackend(kind, 1);
    for (const size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{4096}, size_t{1000001},
                               (size_t{4} << 20) - 1, size_t{4} << 20, (size_t{5} << 20) + 3}) {
      for (int again = 0; again < 2; ++again) {
        const Buffer buffer = backend->Allocate(bytes);
        REQUIRE(buffer.bytes() == bytes);
        REQUIRE(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
        const bool zeroed =
            ReadBytes(*backend, buffer.data(), bytes) == std::vector<std::byte>(bytes);
        CHECK(zeroed);
        WriteBytes(*backend, std::vector<std::byte>(bytes, std::byte{0xA5}), buffer.data());
      }
    }
    CHECK(backend->Allocate(0).bytes() == 0);
  }
}

TEST_CASE("more memory than there is is an error, not a crash", "[backend]") {
  for (const std::string& kind : Kinds()) {
    const auto backend = MakeBackend(kind, 1);
    for (const size_t bytes : {std::numeric_limits<size_t>::max(), size_t{1} << 62}) {
      CHECK_THROWS_AS(backend->Allocate(bytes), Error);
    }
  }
}

const char* const kLoss =
    R"([{"name":"loss","type":"softmax_cross_entropy","inputs":["x0","x1"]}])";

// A device would have to be waited for; its losses turn NaN, which ends a training. (Data sets are
// checked when they are opened.)
TEST_CASE(
    "a label outside the classes is an error that names the sample, and nothing is written;"
    " on a device that sample's loss and gradient are NaN, and no other's",
    "[backend]") {
  const Tensor logits = Random({3, 4}, 1);
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    for (const double bad : {-1.0, 4.0, 1e9}) {
      const Tensor labels{.shape = {3}, .dtype = DType::kI32, .values = {0, bad, 1}};
      Graph graph(*backend, kLoss, {logits, labels});
      Graph::Slot* slot = graph.MakeSlot();
      if (!backend->on_device()) {
        CHECK_THROWS_WITH(graph.Forward(slot, {logits, labels}), ContainsSubstring("sample 1"));
        for (const double value : graph.Output(slot).values) CHECK(std::isnan(value));  // poisoned
        continue;
      }
      graph.Forward(slot, {logits, labels});
      graph.Backward(slot, {});
      const std::vector<double> loss = graph.LossColumnOf(slot, kLossSum);
      const Tensor gradient = graph.InputGradient(slot, 0);
      CHECK(graph.LossColumnOf(slot, kLossRight)[1] == 0);
      for (size_t n = 0; n < 3; ++n) {
        CHECK(std::isnan(loss[n]) == (n == 1));
        for (size_t c = 0; c < 4; ++c) CHECK(std::isnan(gradient.values[4 * n + c]) == (n == 1));
      }
    }
  }
}

TEST_CASE(
    "an index without a row is an error that names the sample, and nothing is written;"
    " on a device its row is NaN, and no other",
    "[backend]") {
  const char* const layers =
      R"([{"name":"l","type":"embedding","num_embeddings":4,"embedding_dim":2}])";
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    for (const int bad : {-1, 4, -100, 2147483647}) {
      const Tensor x{.shape = {3, 2},
                     .dtype = DType::kI32,
                     .values = {0, 1, 2, static_cast<double>(bad), 0, 3}};
      Graph graph(*backend, layers, {x});
      Graph::Slot* slot = graph.MakeSlot();
      if (backend->on_device()) {
        graph.Forward(slot, {x});
        const Tensor y = graph.Output(slot);
        for (size_t i = 0; i < y.values.size(); ++i) CHECK(std::isnan(y.values[i]) == (i / 2 == 3));
        graph.Backward(slot, Random(y.shape, 1));
        for (const double d : graph.ParamGradient(slot, "l.weight").values) CHECK(!std::isnan(d));
        continue;
      }
      std::string found;
      try {
        graph.Forward(slot, {x}, 7);
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::kInvalidInput);
        found = error.what();
      }
      CHECK_THAT(found, ContainsSubstring("minibatch 7: sample 1 has index " + std::to_string(bad) +
                                          ", expected one of 0 to 3"));
      for (const double y : graph.Output(slot).values) CHECK(std::isnan(y));  // as poisoned
    }
  }
}

TEST_CASE("a loss says which predictions are right; the first of equal logits is the prediction",
          "[backend]") {
  const Tensor logits{
      .shape = {4, 3}, .dtype = DType::kF32, .values = {1, 2, 0, 5, 5, 5, 5, 5, 5, -1, -3, -2}};
  const Tensor labels{.shape = {4}, .dtype = DType::kI32, .values = {1, 0, 1, 2}};
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    Graph graph(*backend, kLoss, {logits, labels});
    Graph::Slot* slot = graph.MakeSlot();
    for (const bool training : {true, false}) {
      graph.Forward(slot, {logits, labels}, 0, training);
      CHECK(graph.LossColumnOf(slot, kLossRight) == std::vector<double>{1, 1, 0, 0});
    }
  }
}

// Classes 1, 0, 2 … in falling order of their logits, with ties after the third: the first counts.
TEST_CASE("the top five are those that fewer than five logits beat, ties by the first class",
          "[backend]") {
  const Tensor row{.shape = {8, 8}, .dtype = DType::kF32, .values = {8, 9, 7, 1, 1, 1, 0, 1}};
  Tensor logits = row, labels{.shape = {8}, .dtype = DType::kI32, .values = {}};
  logits.values.clear();
  for (int n = 0; n < 8; ++n) {
    logits.values.insert(logits.values.end(), row.values.begin(), row.values.end());
    labels.values.push_back(n);
  }
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    Graph graph(*backend, kLoss, {logits, labels});
    Graph::Slot* slot = graph.MakeSlot();
    graph.Forward(slot, {logits, labels});
    CHECK(graph.LossColumnOf(slot, kLossRight) == std::vector<double>{0, 1, 0, 0, 0, 0, 0, 0});
    CHECK(graph.LossColumnOf(slot, kLossTop5) == std::vector<double>{1, 1, 1, 1, 1, 0, 0, 0});
    CHECK(graph.LossColumnOf(slot, kLossCounted) == std::vector<double>(8, 1));
  }
}

TEST_CASE("an ignored target counts nowhere, whatever its logits, and has a gradient of zero",
          "[backend]") {
  constexpr double kIgnored = kIgnoredTarget;
  Tensor logits = Random({2, 3, 4}, 1);
  const Tensor labels{.shape = {2, 3},
                      .dtype = DType::kI32,
                      .values = {1, kIgnored, 3, kIgnored, kIgnored, kIgnored}};
  for (size_t c = 0; c < 4; ++c) logits.values[4 + c] = std::numeric_limits<double>::quiet_NaN();
  // The same sums from its counted targets alone.
  const Tensor counted{
      .shape = {2, 4},
      .dtype = DType::kF32,
      .values = {logits.values[0], logits.values[1], logits.values[2], logits.values[3],
                 logits.values[8], logits.values[9], logits.values[10], logits.values[11]}};
  const Tensor their_labels{.shape = {2}, .dtype = DType::kI32, .values = {1, 3}};
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    Graph graph(*backend, kLoss, {logits, labels}), alone(*backend, kLoss, {counted, their_labels});
    Graph::Slot *slot = graph.MakeSlot(), *alone_slot = alone.MakeSlot();
    graph.Forward(slot, {logits, labels});
    graph.Backward(slot, {});
    alone.Forward(alone_slot, {counted, their_labels});
    alone.Backward(alone_slot, {});
    CHECK(graph.LossColumnOf(slot, kLossCounted) == std::vector<double>{2, 0});
    for (const LossColumn column : {kLossSum, kLossRight, kLossTop5}) {
      const std::vector<double> one = graph.LossColumnOf(slot, column),
                                two = alone.LossColumnOf(alone_slot, column);
      CHECK(one[0] == Approx(two[0] + two[1]).epsilon(1e-6));
      CHECK(one[1] == 0);
    }
    // A counted target weighs 1/(2·3) here, 1/2 there.
    const Tensor dx = graph.InputGradient(slot, 0), dx_alone = alone.InputGradient(alone_slot, 0);
    for (size_t i = 0; i < dx.values.size(); ++i) {
      const size_t row = i / 4;
      const double expected = row == 0   ? dx_alone.values[i] / 3
                              : row == 2 ? dx_alone.values[i - 4] / 3
                                         : 0;
      CHECK(dx.values[i] == Approx(expected).epsilon(1e-5));
    }
  }
}

// PyTorch refuses it; here the unbiased variance divides by max(1, m - 1).
TEST_CASE("batch norm of a single value a channel is defined", "[backend]") {
  const Tensor x{.shape = {1, 2}, .dtype = DType::kF32, .values = {3, -5}};
  const Tensor zero{.shape = {2}, .dtype = DType::kF32, .values = {0, 0}};
  const Tensor one{.shape = {2}, .dtype = DType::kF32, .values = {1, 1}};
  const Tensor row{.shape = {1, 2}, .dtype = DType::kF32, .values = {1, 1}};
  const Tensor zero_row{.shape = {1, 2}, .dtype = DType::kF32, .values = {0, 0}};
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    Graph graph(*backend, R"([{"name":"bn","type":"batch_norm"}])", {x});
    graph.SetParam("bn.running_mean", zero);
    graph.SetParam("bn.running_var", one);
    graph.SetParam("bn.bias", one);
    Graph::Slot* slot = graph.MakeSlot();
    graph.Forward(slot, {x});
    graph.Backward(slot, row);
    CheckClose(graph.Output(slot), row, 1e-6, 0, "output");
    CheckClose(graph.InputGradient(slot, 0), zero_row, 1e-6, 0, "gradient");
    CheckClose(graph.Param("bn.running_mean"),
               {.shape = {2}, .dtype = DType::kF32, .values = {0.3, -0.5}}, 1e-6, 0,
               "running mean");
    CheckClose(graph.Param("bn.running_var"),
               {.shape = {2}, .dtype = DType::kF32, .values = {0.9, 0.9}}, 1e-6, 0,
               "running variance");
  }
}

}  // namespace
}  // namespace pd::test
