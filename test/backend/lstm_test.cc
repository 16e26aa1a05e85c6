#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/graph.h"
#include "base/json.h"
#include "support/allocations.h"
#include "support/catch.h"
#include "support/error_of.h"
#if defined(PD_CUDA_EMULATED)
#include "cuda_emulator/control.h"
#endif

namespace pd::test {
namespace {

/// An lstm alone, on x0 and, with `initial`, on the state x1.
struct Case {
  int64_t hidden = 1, layers = 1, batch = 1, steps = 1, features = 1;
  bool initial = false, return_state = false;

  std::string Layers() const {
    return fmt::format(
        R"([{{"name":"l","type":"lstm","hidden_size":{},"num_layers":{},"return_state":{},"inputs":[{}]}}])",
        hidden, layers, return_state, initial ? R"("x0","x1")" : R"("x0")");
  }
  std::vector<Tensor> Inputs(uint64_t seed = 1) const {
    std::vector<Tensor> x = {Random({batch, steps, features}, seed)};
    if (initial) x.push_back(Random({batch, 2 * layers, hidden}, seed + 1000, -1, 1));
    return x;
  }
  std::string Name() const {
    return fmt::format("hidden {} layers {} batch {} steps {} features {} initial {} final {}",
                       hidden, layers, batch, steps, features, initial, return_state);
  }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int64_t hidden : {1, 3, 17}) {
    for (const int64_t layers : {1, 3}) {
      for (const int64_t batch : {1, 5}) {
        for (const int64_t steps : {1, 2, 7}) {
          for (const int state : {0, 1, 2, 3}) {
            const auto count = static_cast<int64_t>(cases.size());
            cases.push_back({.hidden = hidden,
                             .layers = layers,
                             .batch = batch,
                             .steps = steps,
                             .features = 1 + count % 5,
                             .initial = (state & 1) != 0,
                             .return_state = (state & 2) != 0});
          }
        }
      }
    }
  }
  return cases;
}

/// Everything that a pass gives: the output, the gradients of inputs and parameters.
struct Result {
  Tensor y;
  std::vector<std::pair<std::string, Tensor>> gradients;
};

Result ReadBack(const Graph& graph, const Graph::Slot* slot, size_t inputs) {
  Result result{.y = graph.Output(slot), .gradients = {}};
  for (size_t i = 0; i < inputs; ++i) {
    result.gradients.emplace_back(fmt::format("x{}", i), graph.InputGradient(slot, i));
  }
  for (const std::string& name : graph.TrainableNames()) {
    result.gradients.emplace_back(name, graph.ParamGradient(slot, name));
  }
  return result;
}

Result Pass(Graph* graph, const std::vector<Tensor>& x) {
  Graph::Slot* slot = graph->MakeSlot();
  graph->Forward(slot, x);
  graph->Backward(slot, Random(graph->Output(slot).shape, 77, -1, 1));
  graph->CheckPadding(slot);
  return ReadBack(*graph, slot, x.size());
}

/// Within `bound` of the largest element.
void CheckScaled(const Tensor& actual, const Tensor& expected, double bound,
                 const std::string& what) {
  double largest = 1e-3;
  for (const double value : expected.values) largest = std::max(largest, std::abs(value));
  CheckClose(actual, expected, bound * largest, 0, what);
}

void CheckSame(const Result& actual, const Result& expected) {
  CheckEqual(actual.y, expected.y, "output");
  REQUIRE(actual.gradients.size() == expected.gradients.size());
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    CheckEqual(actual.gradients[i].second, expected.gradients[i].second,
               "gradient of " + expected.gradients[i].first);
  }
}

TEST_CASE("an lstm of every shape, with and without states, agrees with the oracle in double",
          "[lstm][compare]") {
  constexpr double kBound = 2e-5;
  const auto oracle_backend = MakeBackend("ref64", 1);
  std::vector<Case> cases = Cases();
  cases.push_back({.hidden = 64, .layers = 2, .batch = 33, .steps = 4, .features = 48});
  for (const std::string& kind : Kinds()) {
    if (kind == "ref64") continue;
    const auto backend = MakeBackend(kind, 1);
    for (const Case& test : cases) {
      INFO(kind << " " << test.Name());
      const std::vector<Tensor> x = test.Inputs();
      Graph oracle(*oracle_backend, test.Layers(), x);
      const Result expected = Pass(&oracle, x);
      Graph graph(*backend, test.Layers(), x);
      const Result result = Pass(&graph, x);
      CheckScaled(result.y, expected.y, kBound, "output");
      for (size_t i = 0; i < expected.gradients.size(); ++i) {
        CheckScaled(result.gradients[i].second, expected.gradients[i].second, kBound,
                    "gradient of " + expected.gradients[i].first);
      }
      // A first layer, of whose inputs no gradient is wanted.
      Graph first(*backend, test.Layers(), x, &graph, false);
      const Result without = Pass(&first, x);
      for (size_t i = x.size(); i < expected.gradients.size(); ++i) {
        CheckScaled(without.gradients[i].second, expected.gradients[i].second, kBound,
                    "gradient of " + expected.gradients[i].first + " without the inputs'");
      }
      Graph::Slot* slot = graph.MakeSlot();
      graph.Forward(slot, x, 0, false);
      CheckScaled(graph.Output(slot), expected.y, kBound, "output in evaluation");
    }
  }
}

/// Central differences of Σ dy·y in double: along a random direction through all elements of a
/// tensor, and along single ones.
class Differences {
 public:
  explicit Differences(Backend& backend, const Case& test)
      : x_(test.Inputs()), graph_(backend, test.Layers(), x_), slot_(graph_.MakeSlot()) {
    graph_.Forward(slot_, x_);
    dy_ = Random(graph_.Output(slot_).shape, 99, -1, 1);
    graph_.Backward(slot_, dy_);
  }

  void Check() {
    const Result result = ReadBack(graph_, slot_, x_.size());
    for (size_t i = 0; i < result.gradients.size(); ++i) {
      const auto& [name, gradient] = result.gradients[i];
      INFO(name);
      const Tensor start = i < x_.size() ? x_[i] : graph_.Param(name);
      REQUIRE(gradient.shape == start.shape);
      CheckAlong(i, name, start, gradient, Random(start.shape, 500 + i, -1, 1));
      const size_t count = start.values.size();
      for (const size_t element : {size_t{0}, count / 2, count - 1}) {
        Tensor one{.shape = start.shape, .dtype = DType::kF32, .values = {}};
        one.values.assign(count, 0);
        one.values[element] = 1;
        CheckAlong(i, name, start, gradient, one);
      }
    }
  }

 private:
  void CheckAlong(size_t i, const std::string& name, const Tensor& start, const Tensor& gradient,
                  const Tensor& direction) {
    constexpr double kStep = 1e-5;
    constexpr double kBound = 1e-6;
    const auto at = [&](double step) {
      Tensor moved = start;
      for (size_t j = 0; j < moved.values.size(); ++j) {
        moved.values[j] += step * direction.values[j];
      }
      Set(i, name, moved);
      return Objective();
    };
    const double difference = (at(kStep) - at(-kStep)) / (2 * kStep);
    Set(i, name, start);
    double found = 0;
    for (size_t j = 0; j < start.values.size(); ++j) {
      found += gradient.values[j] * direction.values[j];
    }
    CHECK(std::abs(found - difference) <= kBound * std::max(1.0, std::abs(difference)));
  }

  void Set(size_t i, const std::string& name, const Tensor& value) {
    if (i < x_.size()) {
      x_[i] = value;
    } else {
      graph_.SetParam(name, value);
    }
  }

  double Objective() {
    graph_.Forward(slot_, x_);
    const Tensor y = graph_.Output(slot_);
    double sum = 0;
    for (size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * dy_.values[i];
    return sum;
  }

  std::vector<Tensor> x_;
  Graph graph_;
  Graph::Slot* slot_;
  Tensor dy_;
};

TEST_CASE("gradients of an lstm are central differences, through its states too",
          "[lstm][gradient]") {
  const auto backend = MakeBackend("ref64", 1);
  for (const Case& test : Cases()) {
    if (test.initial != test.return_state) continue;
    INFO(test.Name());
    Differences(*backend, test).Check();
  }
}

TEST_CASE("lstm minibatches in flight do not disturb each other", "[lstm][in_flight]") {
  constexpr uint64_t kMinibatches = 4;
  const Case test{.hidden = 17,
                  .layers = 3,
                  .batch = 5,
                  .steps = 7,
                  .features = 4,
                  .initial = true,
                  .return_state = true};
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    Graph graph(*backend, test.Layers(), test.Inputs());
    Graph::Slot* alone = graph.MakeSlot();
    std::vector<Result> expected;
    std::vector<Tensor> dy;
    for (uint64_t b = 0; b < kMinibatches; ++b) {
      graph.Forward(alone, test.Inputs(b), b);
      dy.push_back(Random(graph.Output(alone).shape, 300 + b, -1, 1));
      graph.Backward(alone, dy.back());
      expected.push_back(ReadBack(graph, alone, 2));
    }
    std::vector<Graph::Slot*> slots;
    for (uint64_t b = 0; b < kMinibatches; ++b) {
      slots.push_back(graph.MakeSlot());
      graph.Forward(slots[b], test.Inputs(b), b);
    }
    for (uint64_t b = 0; b < kMinibatches; ++b) {
      graph.Backward(slots[b], dy[b]);
      CheckSame(ReadBack(graph, slots[b], 2), expected[b]);
    }
  }
}

TEST_CASE("an lstm gives the same bits run after run", "[lstm]") {
  const Case test{.hidden = 33, .layers = 2, .batch = 5, .steps = 7, .features = 20};
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    std::vector<Result> results;
    for (int run = 0; run < 2; ++run) {
      const auto backend = MakeBackend(kind, 1);
      Graph graph(*backend, test.Layers(), test.Inputs());
      results.push_back(Pass(&graph, test.Inputs()));
    }
    CheckSame(results[1], results[0]);
  }
}

TEST_CASE("lstms in one stage and in two give the same bits", "[lstm]") {
  constexpr int64_t kBatch = 5, kSteps = 6, kHidden = 17, kFeatures = 9;
  const Case first{
      .hidden = kHidden, .layers = 2, .batch = kBatch, .steps = kSteps, .features = kFeatures};
  const std::string whole_layers = fmt::format(
      R"([{{"name":"a","type":"lstm","hidden_size":{0},"num_layers":2}},
          {{"name":"b","type":"lstm","hidden_size":{0}}}])",
      kHidden);
  const std::vector<Tensor> x = first.Inputs();
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    Graph whole(*backend, whole_layers, x);
    const Result expected = Pass(&whole, x);

    Graph a(
        *backend,
        fmt::format(R"([{{"name":"a","type":"lstm","hidden_size":{},"num_layers":2}}])", kHidden),
        x);
    Graph::Slot* a_slot = a.MakeSlot();
    a.Forward(a_slot, x);
    const std::vector<Tensor> between = {a.Output(a_slot)};
    Graph b(*backend, fmt::format(R"([{{"name":"b","type":"lstm","hidden_size":{}}}])", kHidden),
            between);
    Graph::Slot* b_slot = b.MakeSlot();
    b.Forward(b_slot, between);
    b.Backward(b_slot, Random(b.Output(b_slot).shape, 77, -1, 1));
    a.Backward(a_slot, b.InputGradient(b_slot, 0));

    Result result = ReadBack(a, a_slot, 1);
    result.y = b.Output(b_slot);
    for (auto& gradient : ReadBack(b, b_slot, 0).gradients) result.gradients.push_back(gradient);
    CheckSame(result, expected);
  }
}

TEST_CASE("the state that an lstm returns continues its sequence", "[lstm]") {
  const Case whole{
      .hidden = 17, .layers = 2, .batch = 3, .steps = 7, .features = 4, .return_state = true};
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    const std::vector<Tensor> x = whole.Inputs();
    Graph graph(*backend, whole.Layers(), x);
    Graph::Slot* slot = graph.MakeSlot();
    graph.Forward(slot, x);
    const Tensor expected = graph.Output(slot);

    // Rows `from` to `to` of each sample.
    const auto rows = [&](const Tensor& tensor, int64_t from, int64_t to) {
      const int64_t width = tensor.shape[2];
      Tensor part{.shape = {whole.batch, to - from, width}, .dtype = DType::kF32, .values = {}};
      for (int64_t n = 0; n < whole.batch; ++n) {
        const auto begin = tensor.values.begin() + (n * tensor.shape[1] + from) * width;
        part.values.insert(part.values.end(), begin, begin + (to - from) * width);
      }
      return part;
    };
    Case part = whole;
    part.steps = 3;
    const std::vector<Tensor> head = {rows(x[0], 0, 3)};
    Graph head_graph(*backend, part.Layers(), head);
    Graph::Slot* head_slot = head_graph.MakeSlot();
    head_graph.Forward(head_slot, head);
    part.steps = 4;
    part.initial = true;
    const std::vector<Tensor> tail = {rows(x[0], 3, 7), rows(head_graph.Output(head_slot), 3, 7)};
    Graph tail_graph(*backend, part.Layers(), tail);
    Graph::Slot* tail_slot = tail_graph.MakeSlot();
    tail_graph.Forward(tail_slot, tail);
    CheckClose(tail_graph.Output(tail_slot), rows(expected, 3, 11), 1e-6, 0, "the tail");
  }
}

TEST_CASE("an lstm of ref allocates nothing in forward or backward", "[lstm][allocation]") {
  const Case test{.hidden = 3,
                  .layers = 3,
                  .batch = 5,
                  .steps = 7,
                  .features = 4,
                  .initial = true,
                  .return_state = true};
  for (const char* kind : {"ref", "ref64"}) {
    const auto backend = MakeBackend(kind, 1);
    Graph graph(*backend, test.Layers(), test.Inputs());
    Graph::Slot* slot = graph.MakeSlot();
    graph.Load(slot, test.Inputs());
    const int64_t before = AllocationsOfAllThreads();
    graph.RunForward(slot, 0, true);
    graph.RunBackward(slot);
    graph.RunForward(slot, 0, false);
    CHECK(AllocationsOfAllThreads() == before);
  }
}

#if defined(PD_CUDA_EMULATED)
TEST_CASE("an lstm on cuda allocates nothing, waits for nothing and leaves nothing",
          "[lstm][cuda][allocation]") {
  const Case test{.hidden = 3,
                  .layers = 3,
                  .batch = 5,
                  .steps = 7,
                  .features = 4,
                  .initial = true,
                  .return_state = true};
  {
    const auto backend = MakeBackend("cuda", 1);
    Graph graph(*backend, test.Layers(), test.Inputs());
    Graph::Slot* slot = graph.MakeSlot();
    graph.Load(slot, test.Inputs());
    const uint64_t allocations = cuda_emulator::AllocationCount();
    const uint64_t handles = cuda_emulator::HandleCount();
    const uint64_t waits = cuda_emulator::SynchronizeCount();
    for (int step = 0; step < 2; ++step) {
      graph.RunForward(slot, 0, true);
      graph.RunBackward(slot);
      graph.RunForward(slot, 0, false);
    }
    CHECK(cuda_emulator::AllocationCount() == allocations);
    CHECK(cuda_emulator::HandleCount() == handles);
    CHECK(cuda_emulator::SynchronizeCount() == waits);
  }
  CHECK(cuda_emulator::Leaks() == std::vector<std::string>{});
  CHECK(cuda_emulator::TakeMisuses() == std::vector<std::string>{});
}

TEST_CASE("whichever call of an lstm fails, an error says so and nothing is left behind",
          "[lstm][cuda]") {
  const Case test{.hidden = 2,
                  .layers = 2,
                  .batch = 1,
                  .steps = 2,
                  .features = 2,
                  .initial = true,
                  .return_state = true};
  const auto backend = MakeBackend("cuda", 1);
  const size_t alive = cuda_emulator::Leaks().size();
  uint64_t thrown = 0;
  for (uint64_t n = 1;; ++n) {
    INFO("call " << n);
    cuda_emulator::FailCall(n);
    try {
      Graph graph(*backend, test.Layers(), test.Inputs());
      Graph::Slot* slot = graph.MakeSlot();
      graph.Forward(slot, test.Inputs());
      graph.RunBackward(slot);
      graph.Output(slot);
    } catch (const Error& error) {
      ++thrown;
      CHECK(std::string(error.what()).size() > 10);
    }
    const bool failed = cuda_emulator::CallFailed();
    cuda_emulator::FailCall(0);
    CHECK(cuda_emulator::Leaks().size() == alive);
    CHECK(cuda_emulator::TakeMisuses() == std::vector<std::string>{});
    if (!failed) break;
  }
  CHECK(thrown > 100);
  cuda_emulator::Reset();
}
#endif

TEST_CASE("an lstm refuses keys and inputs that do not fit", "[lstm]") {
  const auto refusal = [](const std::string& keys, const std::vector<TensorSpec>& inputs) {
    const std::string json = fmt::format(R"({{"name":"l","type":"lstm",{}}})", keys);
    return ErrorOf([&] { MakeLayer(JsonView::Parse(json, "m.json"), inputs); });
  };
  const TensorSpec x{.shape = {7, 4}, .dtype = DType::kF32};
  CHECK_THAT(refusal(R"("num_layers":2)", {x}), ContainsSubstring("hidden_size"));
  CHECK_THAT(refusal(R"("hidden_size":0)", {x}), ContainsSubstring("/hidden_size"));
  CHECK_THAT(refusal(R"("hidden_size":3,"num_layers":65)", {x}),
             ContainsSubstring("/num_layers") && ContainsSubstring("at most 64"));
  CHECK_THAT(refusal(R"("hidden_size":3,"dropout":0.5)", {x}), ContainsSubstring("dropout"));
  CHECK_THAT(refusal(R"("hidden_size":3)", {{.shape = {4}, .dtype = DType::kF32}}),
             ContainsSubstring("f32 [steps, features] as input of lstm \"l\""));
  CHECK_THAT(refusal(R"("hidden_size":3)", {{.shape = {7, 4}, .dtype = DType::kI32}}),
             ContainsSubstring("expected f32 as input"));
  CHECK_THAT(refusal(R"("hidden_size":3)", {x, {.shape = {1, 3}, .dtype = DType::kF32}}),
             ContainsSubstring("a state f32 [2, 3] as input of lstm \"l\""));
  CHECK_THAT(refusal(R"("hidden_size":3)", {x, x, x}), ContainsSubstring("3 inputs"));
}

}  // namespace
}  // namespace pd::test
