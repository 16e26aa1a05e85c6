#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "backend/graph.h"
#include "support/catch.h"

// Gradients against central differences in double: the objective is Σ dy·y for a random dy, or the
// weighted mean of a loss.

namespace pd::test {
namespace {

struct GradientCase {
  std::string layers;
  std::vector<Shape> inputs;
  int64_t classes = 0;  ///< Not 0: a label comes last.
  Tensor indices = {};  ///< Not empty: comes after the inputs.
};

constexpr double kStep = 1e-5;
constexpr double kBound = 1e-6;

class Checker {
 public:
  Checker(const GradientCase& test, Backend* backend) : x_(InputsOf(test)) {
    graph_ = std::make_unique<Graph>(*backend, test.layers, x_);
    slot_ = graph_->MakeSlot();
    graph_->Forward(slot_, x_);
    dy_ = Random(graph_->Output(slot_).shape, 99, -1, 1);
    graph_->Backward(slot_, dy_);
  }

  /// Checks all; gives the share of the elements that lie on a kink.
  double Run() {
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < x_.size(); ++i) gradients.push_back(graph_->InputGradient(slot_, i));
    std::vector<std::pair<std::string, Tensor>> param_gradients;
    for (const std::string& name : graph_->TrainableNames()) {
      param_gradients.emplace_back(name, graph_->ParamGradient(slot_, name));
    }
    for (size_t i = 0; i < x_.size(); ++i) {
      if (x_[i].dtype == DType::kI32) continue;
      CheckTensor(fmt::format("input {}", i), x_[i], gradients[i],
                  [&](const Tensor& value) { x_[i] = value; });
    }
    for (const auto& [name, gradient] : param_gradients) {
      CheckTensor(name, graph_->Param(name), gradient,
                  [&, &key = name](const Tensor& value) { graph_->SetParam(key, value); });
    }
    return static_cast<double>(kinks_) / static_cast<double>(checked_ + kinks_);
  }

 private:
  static std::vector<Tensor> InputsOf(const GradientCase& test) {
    std::vector<Tensor> x;
    for (const Shape& shape : test.inputs) x.push_back(Random(shape, 1 + x.size()));
    if (!test.indices.shape.empty()) x.push_back(test.indices);
    if (test.classes > 0) x.push_back(RandomLabels(test.inputs[0][0], test.classes, 3));
    return x;
  }

  double Objective() {
    graph_->Forward(slot_, x_);
    const Tensor y = graph_->Output(slot_);
    double sum = 0;
    if (graph_->last_layer().is_loss()) {
      for (const double loss : graph_->LossColumnOf(slot_, kLossSum)) sum += loss;
      return sum / static_cast<double>(x_.back().values.size()) *
             graph_->last_layer().loss_weight();
    }
    for (size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * dy_.values[i];
    return sum;
  }

  /// `start` is a copy: `set` changes what it was taken from.
  void CheckTensor(const std::string& what, const Tensor start, const Tensor& gradient,
                   const std::function<void(const Tensor&)>& set) {
    REQUIRE(gradient.shape == start.shape);
    const double middle = Objective();
    Tensor moved = start;
    for (size_t i = 0; i < start.values.size(); ++i) {
      const auto at = [&](double step) {
        moved.values[i] = start.values[i] + step;
        set(moved);
        return Objective();
      };
      const double right = (at(kStep) - middle) / kStep;
      const double left = (middle - at(-kStep)) / kStep;
      moved.values[i] = start.values[i];
      const double central = (right + left) / 2;
      // On a kink the two slopes differ by more than curvature makes of so small a step.
      if (std::abs(right - left) > 1e-2 * std::max(1.0, std::abs(central))) {
        ++kinks_;
        continue;
      }
      ++checked_;
      const double found = gradient.values[i];
      if (std::abs(found - central) <= kBound * std::max(1.0, std::abs(central))) continue;
      FAIL(fmt::format("{}, element {}: gradient {:.10g}, differences give {:.10g}", what, i, found,
                       central));
    }
    set(start);
  }

  std::vector<Tensor> x_;
  std::unique_ptr<Graph> graph_;
  Graph::Slot* slot_;
  Tensor dy_;
  int64_t checked_ = 0, kinks_ = 0;
};

using AddCase = std::function<void(const std::string& layer, std::vector<Shape> inputs)>;

void AddSequenceCases(std::vector<GradientCase>* cases, const AddCase& add) {
  add(R"("type":"concat","axis":1)", {{2, 3, 2}, {2, 3, 4}});
  add(R"("type":"concat","axis":2)", {{2, 3, 2, 1}, {2, 3, 2, 3}});
  add(R"("type":"gelu")", {{3, 17}});
  add(R"("type":"gelu","approximate":"tanh")", {{2, 3, 5, 1}});
  add(R"("type":"layer_norm")", {{2, 3, 7}});
  add(R"("type":"layer_norm","eps":0.01)", {{5, 2}});
  add(R"("type":"layer_norm")", {{1, 2, 3, 4}});
  add(R"("type":"position_embedding")", {{3, 5, 2}});
  for (const char* causal : {"false", "true"}) {
    const auto attention = [&](int heads, const Shape& x) {
      add(fmt::format(R"("type":"attention","heads":{},"causal":{})", heads, causal), {x});
    };
    attention(1, {2, 1, 3});
    attention(3, {2, 5, 27});
    attention(2, {1, 7, 6});
  }
  add(R"("type":"slice","begin":1,"end":3)", {{2, 5, 3}});
  add(R"("type":"slice","axis":2,"begin":2,"end":3)", {{2, 3, 2, 5}});
  add(R"("type":"pad","before":[1,0],"after":[2,3])", {{2, 3, 2}});
  add(R"("type":"transpose","axes":[2,0,1])", {{2, 3, 1, 5}});
  add(R"("type":"reshape","shape":[2,1,5])", {{3, 10}});
  const char* const kEmbedding =
      R"([{"name":"l","type":"embedding","num_embeddings":5,"embedding_dim":3,"inputs":["x0"]}])";
  cases->push_back({kEmbedding, {}, 0, RandomIndices({2, 4}, 5, 6)});
  cases->push_back({kEmbedding, {}, 0, RandomIndices({3}, 5, 6)});
  // A block of a transformer; x1 are the words, x2 the label.
  cases->push_back({R"([
      {"name":"words","type":"reshape","shape":[5],"inputs":["x1"]},
      {"name":"embed","type":"embedding","num_embeddings":4,"embedding_dim":6},
      {"name":"sum","type":"add","inputs":["embed","x0"]},
      {"name":"pos","type":"position_embedding"},
      {"name":"norm","type":"layer_norm"},
      {"name":"qkv","type":"linear","out_features":18},
      {"name":"attention","type":"attention","heads":2,"causal":true},
      {"name":"skip","type":"add","inputs":["attention","pos"]},
      {"name":"fc","type":"linear","out_features":7},
      {"name":"gelu","type":"gelu"},
      {"name":"last","type":"slice","begin":4,"end":5},
      {"name":"flat","type":"flatten"},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["flat","x2"]}])",
                    {{3, 5, 6}},
                    7,
                    RandomIndices({3, 5, 1}, 4, 8)});
}

std::vector<GradientCase> Cases() {
  std::vector<GradientCase> cases;
  const auto add = [&](const std::string& layer, std::vector<Shape> inputs) {
    std::string names;
    for (size_t i = 0; i < inputs.size(); ++i) names += fmt::format("{}\"x{}\"", i ? "," : "", i);
    cases.push_back(
        {fmt::format(R"([{{"name":"l",{},"inputs":[{}]}}])", layer, names), std::move(inputs)});
  };
  add(R"("type":"conv2d","out_channels":3,"kernel":3,"padding":1)", {{2, 3, 5, 4}});
  add(R"("type":"conv2d","out_channels":1,"kernel":1,"bias":false)", {{1, 1, 1, 1}});
  add(R"("type":"conv2d","out_channels":6,"kernel":[3,2],"stride":[2,3],"padding":[0,1],"groups":3)",
      {{3, 3, 7, 6}});
  add(R"("type":"conv2d","out_channels":4,"kernel":[2,3],"dilation":[3,2],"padding":2,"groups":2)",
      {{1, 2, 7, 5}});
  add(R"("type":"conv2d","out_channels":5,"kernel":3,"groups":5,"stride":2)", {{2, 5, 6, 7}});
  add(R"("type":"linear","out_features":7)", {{3, 17}});
  add(R"("type":"linear","out_features":1,"bias":false)", {{1, 1}});
  add(R"("type":"linear","out_features":3)", {{2, 3, 5}});
  add(R"("type":"max_pool2d","kernel":3,"stride":2,"padding":1)", {{2, 3, 7, 5}});
  add(R"("type":"max_pool2d","kernel":[2,3],"stride":1,"ceil":true)", {{1, 1, 5, 4}});
  add(R"("type":"avg_pool2d","kernel":3,"stride":2,"padding":1,"ceil":true)", {{2, 3, 6, 5}});
  add(R"("type":"avg_pool2d","kernel":[3,2],"padding":[1,0],"count_include_pad":false)",
      {{1, 2, 7, 5}});
  add(R"("type":"global_avg_pool2d")", {{2, 3, 5, 7}});
  add(R"("type":"flatten")", {{3, 2, 1, 5}});
  add(R"("type":"relu")", {{3, 17}});
  add(R"("type":"tanh")", {{2, 3, 5, 1}});
  add(R"("type":"sigmoid")", {{3, 17}});
  add(R"("type":"dropout","p":0.3)", {{5, 17}});
  add(R"("type":"batch_norm")", {{4, 3, 2, 5}});
  add(R"("type":"batch_norm","eps":0.01)", {{7, 5}});
  add(R"("type":"lrn","alpha":1.5)", {{2, 7, 3, 1}});
  add(R"("type":"lrn","size":3,"alpha":2,"beta":0.5,"k":2)", {{1, 2, 2, 2}});
  add(R"("type":"lrn","size":7,"alpha":2)", {{2, 4, 1, 3}});
  add(R"("type":"add")", {{2, 3, 3}, {2, 3, 3}, {2, 3, 3}});
  add(R"("type":"concat")", {{2, 1, 3, 3}, {2, 5, 3, 3}, {2, 3, 3, 3}});
  AddSequenceCases(&cases, add);
  cases.push_back(
      {R"([{"name":"l","type":"softmax_cross_entropy","inputs":["x0","x1"]}])", {{5, 7}}, 7});
  cases.push_back(
      {R"([{"name":"l","type":"softmax_cross_entropy","weight":0.3,"inputs":["x0","x1"]}])",
       {{1, 3}},
       3});
  constexpr double kIgnored = kIgnoredTarget;
  cases.push_back(
      {R"([{"name":"l","type":"softmax_cross_entropy","weight":0.7,"inputs":["x0","x1"]}])",
       {{3, 2, 5}},
       0,
       {.shape = {3, 2}, .dtype = DType::kI32, .values = {0, kIgnored, 4, 1, kIgnored, kIgnored}}});
  // The harness's own rule for a tensor with two consumers.
  cases.push_back({R"([{"name":"a","type":"conv2d","out_channels":3,"kernel":3,"padding":1},
                       {"name":"b","type":"tanh"},
                       {"name":"c","type":"batch_norm","inputs":["a"]},
                       {"name":"d","type":"add","inputs":["b","c","x0"]},
                       {"name":"e","type":"flatten"},
                       {"name":"f","type":"linear","out_features":4},
                       {"name":"g","type":"softmax_cross_entropy","inputs":["f","x1"]}])",
                   {{3, 3, 4, 5}},
                   4});
  return cases;
}

TEST_CASE("gradients are central differences of the output", "[gradient]") {
  const auto backend = MakeBackend("ref64", 1);
  for (const GradientCase& test : Cases()) {
    INFO(test.layers);
    const double kinks = Checker(test, backend.get()).Run();
    CHECK(kinks < 0.1);
  }
}

}  // namespace
}  // namespace pd::test
