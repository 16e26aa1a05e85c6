// A model cut into stages, run stage by stage in double: its gradients against central differences
// of its loss.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "stage/program.h"
#include "support/catch.h"

namespace pd {
namespace {

constexpr int64_t kBatch = 3;

constexpr const char* kModel = R"({"format":"pipedream.model/1","name":"skips",
  "inputs":[{"name":"image","shape":[2,4,4]},{"name":"label","shape":[],"dtype":"i32"}],
  "layers":[
    {"name":"conv1","type":"conv2d","inputs":["image"],"out_channels":3,"kernel":3,"padding":1},
    {"name":"bn","type":"batch_norm"},
    {"name":"tanh1","type":"tanh"},
    {"name":"conv2","type":"conv2d","out_channels":3,"kernel":3,"padding":1},
    {"name":"drop","type":"dropout"},
    {"name":"add1","type":"add","inputs":["drop","tanh1"]},
    {"name":"conv3","type":"conv2d","out_channels":3,"kernel":1},
    {"name":"add2","type":"add","inputs":["conv3","tanh1","tanh1"]},
    {"name":"cat","type":"concat","inputs":["add2","add1","tanh1"]},
    {"name":"flat","type":"flatten"},
    {"name":"fc","type":"linear","out_features":4},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})";

// All stages in one thread; messages are blocks by tag.
class Stages {
 public:
  explicit Stages(const std::vector<std::vector<std::string>>& stages)
      : model_(Model::Parse(JsonView::Parse(kModel, "model"))),
        cut_(MakeCut(model_, stages)),
        backend_(MakeBackend("ref64", 1)),
        plan_(model_, *backend_, kBatch, 5) {
    std::mt19937 random(1);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (TensorId t = 0; t < model_.num_inputs(); ++t) {
      inputs_.push_back(backend_->Allocate(plan_.layout(t).bytes));
      for (int64_t i = 0; i < Elements(plan_.layout(t).dims); ++i) {
        if (plan_.layout(t).dtype == DType::kI32) {
          reinterpret_cast<int32_t*>(inputs_[t].data())[i] = static_cast<int32_t>(random() % 4);
        } else {
          reinterpret_cast<double*>(inputs_[t].data())[i] = uniform(random);
        }
      }
    }
    for (int s = 0; s < cut_.num_stages(); ++s) stages_.emplace_back(*this, s);
    for (const BorderMessage& m : cut_.messages) {
      messages_.push_back(backend_->Allocate(plan_.layout(m.tensor).bytes));
    }
  }

  double Loss() {
    double sum = 0;
    for (Stage& stage : stages_) {
      Forward(stage);
      for (const StageProgram::Loss& loss : stage.program->losses()) {
        const auto* values = reinterpret_cast<const double*>(stage.arena.data() + loss.values);
        for (int64_t i = 0; i < kBatch; ++i) {
          sum += model_.layers()[loss.layer].layer->loss_weight() * values[i * kLossColumns] /
                 static_cast<double>(kBatch);
        }
      }
    }
    return sum;
  }

  void Backward() {
    for (size_t s = stages_.size(); s-- > 0;) {
      StageObserver nobody;
      stages_[s].program->Backward(MemoryOf(stages_[s]), nobody);
    }
  }

  // Calls `visit(name, value, gradient)` for every parameter.
  template <typename Visit>
  void ForEach(Visit&& visit) {
    for (Stage& stage : stages_) {
      for (const WeightLayout::Entry& entry : stage.weights->params()) {
        auto* values = reinterpret_cast<double*>(stage.params.data() + entry.offset);
        auto* gradients = reinterpret_cast<double*>(stage.gradients.data() + entry.offset);
        for (int64_t i = 0; i < Elements(entry.layout.dims); ++i)
          visit(entry.name, values[i], gradients[i]);
      }
    }
  }

 private:
  struct Stage {
    Stage(Stages& all, int number) : index(number) {
      weights = std::make_unique<WeightLayout>(all.model_, all.plan_, all.cut_.layers[number]);
      program = std::make_unique<StageProgram>(all.model_, all.plan_, *weights, *all.backend_,
                                               all.cut_, number);
      params = all.backend_->Allocate(weights->params_bytes());
      gradients = all.backend_->Allocate(weights->params_bytes());
      state = all.backend_->Allocate(weights->state_bytes());
      arena = all.backend_->Allocate(program->arena_bytes());
      scratch = all.backend_->Allocate(program->scratch_bytes());
      for (const StageProgram::Output& output : program->outputs()) {
        made.push_back(all.backend_->Allocate(output.bytes));
        outputs.push_back(made.back().data());
      }
      weights->Initialise(all.model_, *all.backend_, 9, params.data(), state.data());
    }
    int index;
    std::unique_ptr<WeightLayout> weights;
    std::unique_ptr<StageProgram> program;
    Buffer params, gradients, state, arena, scratch;
    std::vector<Buffer> made;
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs, received, sent;
  };

  StageMemory MemoryOf(Stage& stage) {
    stage.inputs.clear();
    stage.received.clear();
    stage.sent.clear();
    for (const TensorId t : stage.program->inputs()) {
      const std::byte* from = stage.index == 0 ? inputs_[t].data() : nullptr;
      for (const int m : cut_.Incoming(stage.index, false)) {
        if (cut_.messages[m].tensor == t) from = messages_[m].data();
      }
      stage.inputs.push_back(from);
    }
    for (const int m : cut_.Incoming(stage.index, true))
      stage.received.push_back(messages_[m].data());
    for (const int m : cut_.Outgoing(stage.index, true)) stage.sent.push_back(messages_[m].data());
    return {.arena = stage.arena.data(),
            .scratch = stage.scratch.data(),
            .inputs = stage.inputs,
            .outputs = stage.outputs,
            .gradients_received = stage.received,
            .gradients_sent = stage.sent,
            .weights = stage.params.data(),
            .weight_gradients = stage.gradients.data(),
            .state = stage.state.data(),
            .minibatch = 2};
  }

  void Forward(Stage& stage) {
    StageObserver nobody;
    stage.program->Forward(MemoryOf(stage), nobody);
    for (size_t o = 0; o < stage.outputs.size(); ++o) {
      const StageProgram::Output& output = stage.program->outputs()[o];
      for (const int m : cut_.Outgoing(stage.index, false)) {
        if (cut_.messages[m].tensor != output.tensor) continue;
        std::memcpy(messages_[m].data(), stage.outputs[o], output.bytes);
      }
    }
  }

  Model model_;
  Cut cut_;
  std::unique_ptr<Backend> backend_;
  ModelPlan plan_;
  std::vector<Buffer> inputs_, messages_;
  std::vector<Stage> stages_;
};

const std::vector<std::string> kLayers = {"conv1", "bn",   "tanh1", "conv2", "drop", "add1",
                                          "conv3", "add2", "cat",   "flat",  "fc",   "loss"};

// Cut before the layers with these numbers.
std::vector<std::vector<std::string>> CutBefore(const std::vector<size_t>& first) {
  std::vector<std::vector<std::string>> stages(1);
  for (size_t l = 0; l < kLayers.size(); ++l) {
    if (std::find(first.begin(), first.end(), l) != first.end()) stages.emplace_back();
    stages.back().push_back(kLayers[l]);
  }
  return stages;
}

const std::vector<std::vector<size_t>> kCuts = {
    {}, {3}, {5}, {8}, {3, 8}, {3, 6, 8}, {5, 7, 9}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};

TEST_CASE("gradients of a cut model are central differences of its loss") {
  for (const std::vector<size_t>& cut : kCuts) {
    Stages stages(CutBefore(cut));
    stages.Loss();
    stages.Backward();
    std::vector<double> gradients;
    stages.ForEach([&](const std::string&, double&, double g) { gradients.push_back(g); });
    size_t i = 0;
    double largest = 0;
    stages.ForEach([&](const std::string& name, double& value, double&) {
      INFO(name << ", " << cut.size() + 1 << " stages");
      constexpr double kStep = 1e-5;
      const double start = value;
      value = start + kStep;
      const double right = stages.Loss();
      value = start - kStep;
      const double left = stages.Loss();
      value = start;
      const double expected = (right - left) / (2 * kStep);
      const double got = gradients[i++];
      largest = std::max(largest, std::abs(got));
      REQUIRE(std::abs(got - expected) <= 1e-6 * std::max(1.0, std::abs(expected)));
    });
    CHECK(largest > 0.01);
  }
}

TEST_CASE("loss and gradients of a model are the same bits however it is cut") {
  std::map<std::string, std::vector<double>> wanted;
  double loss = 0;
  for (const std::vector<size_t>& cut : kCuts) {
    Stages stages(CutBefore(cut));
    const double got_loss = stages.Loss();
    stages.Backward();
    std::map<std::string, std::vector<double>> got;
    stages.ForEach([&](const std::string& name, double&, double g) { got[name].push_back(g); });
    if (cut.empty()) {
      wanted = got;
      loss = got_loss;
    }
    CHECK(got == wanted);
    CHECK(got_loss == loss);
  }
}

}  // namespace
}  // namespace pd
