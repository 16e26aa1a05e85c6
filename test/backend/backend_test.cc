#include "backend/backend.h"

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
  CHECK_THAT(Refusal("gpu", 1), ContainsSubstring("\"gpu\"") && ContainsSubstring("ref, ref64"));
  CHECK_THAT(Refusal("", 1), ContainsSubstring("ref, ref64"));
  CHECK_THAT(Refusal("Ref", 1), ContainsSubstring("ref, ref64"));
  CHECK_THAT(Refusal("ref", 0), ContainsSubstring("threads"));
  CHECK_THAT(Refusal("ref", -1), ContainsSubstring("threads"));
}

TEST_CASE("a CUDA device is refused where there is none, saying why", "[backend]") {
  const std::string why = WhyNoCuda();
  const std::vector<std::string> kinds = Kinds();
  const bool listed = std::find(kinds.begin(), kinds.end(), "cuda") != kinds.end();
  CHECK(listed == why.empty());
  if (why.empty()) {
    CHECK_THAT(Refusal("cuda:1000", 1), ContainsSubstring("\"cuda:1000\": expected cuda:N"));
    for (const char* kind : {"cuda:", "cuda:-1", "cuda:0x0", "cuda: 0", "cuda:0 "}) {
      CHECK_THAT(Refusal(kind, 1), ContainsSubstring("expected cuda:N with N from 0 to"));
    }
    return;
  }
  WARN("skipped in all suites: device cuda: " << why);
  for (const char* kind : {"cuda", "cuda:0", "cuda:1"}) {
    CHECK_THAT(Refusal(kind, 1), ContainsSubstring("no CUDA") && ContainsSubstring(why));
  }
}

TEST_CASE("auto takes a GPU where there is one, else the cpu", "[backend]") {
  const std::vector<std::string> kinds = Kinds();
  for (const char* kind : {"cuda", "cpu"}) {
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) continue;
    CHECK(MakeBackend("auto", 1)->kind() == kind);
    return;
  }
  CHECK_THAT(Refusal("auto", 1), ContainsSubstring("ref, ref64"));
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
        for (const double loss : graph.Output(slot).values) CHECK(std::isnan(loss));  // as poisoned
        continue;
      }
      graph.Forward(slot, {logits, labels});
      graph.Backward(slot, {});
      const Tensor loss = graph.Output(slot);
      const Tensor gradient = graph.InputGradient(slot, 0);
      CHECK(graph.Correct(slot)[1] == 0);
      for (size_t n = 0; n < 3; ++n) {
        CHECK(std::isnan(loss.values[n]) == (n == 1));
        for (size_t c = 0; c < 4; ++c) CHECK(std::isnan(gradient.values[4 * n + c]) == (n == 1));
      }
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
      CHECK(graph.Correct(slot) == std::vector<float>{1, 1, 0, 0});
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
