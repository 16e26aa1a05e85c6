// Losses of sequences, with targets that are not counted, and models with more than one loss.
#include <cstring>

#include "base/random.h"
#include "data/loader.h"
#include "pipeline/deferred_backend.h"
#include "pipeline/pipelined.h"
#include "pipeline/session.h"
#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

constexpr int64_t kTargets = 3, kFeatures = 6, kClasses = 5;

// `aux` hangs on the first layers, `loss` on the last.
std::string TwoLosses(const std::string& aux_keys = "") {
  return R"({"format":"pipedream.model/1","name":"two losses",
  "inputs":[{"name":"x","shape":[3,6]},{"name":"targets","shape":[3],"dtype":"i32"}],
  "layers":[
    {"name":"fc1","type":"linear","inputs":["x"],"out_features":8},
    {"name":"tanh1","type":"tanh"},
    {"name":"aux_pre","type":"linear","out_features":8)" +
         aux_keys + R"(},
    {"name":"aux_fc","type":"linear","out_features":5)" +
         aux_keys + R"(},
    {"name":"aux","type":"softmax_cross_entropy","inputs":["aux_fc","targets"],"weight":0.4},
    {"name":"fc2","type":"linear","inputs":["tanh1"],"out_features":8},
    {"name":"tanh2","type":"tanh"},
    {"name":"fc3","type":"linear","out_features":5},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc3","targets"]}]})";
}

// Sequences of which about a third of the targets is not counted, and of every seventh none.
class Sequences final : public Dataset {
 public:
  explicit Sequences(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  const std::vector<TensorSpec>& fields() const override { return fields_; }
  void Read(int64_t index, int field, uint64_t /*epoch*/, void* out) const override {
    const auto sample = static_cast<uint64_t>(index);
    if (field == 0) {
      auto* x = static_cast<float*>(out);
      for (uint64_t i = 0; i < kTargets * kFeatures; ++i) {
        x[i] = 2 * ToUniform(Philox(5, sample, i)[0]) - 1;
      }
      return;
    }
    auto* targets = static_cast<int32_t*>(out);
    for (uint64_t t = 0; t < kTargets; ++t) {
      const auto bits = Philox(6, sample, t);
      const bool counted = bits[0] % 3 != 0 && index % 7 != 6;
      targets[t] = counted ? static_cast<int32_t>(bits[1] % kClasses) : kIgnoredTarget;
    }
  }

 private:
  int64_t size_;
  std::vector<TensorSpec> fields_ = {{{kTargets, kFeatures}, DType::kF32},
                                     {{kTargets}, DType::kI32}};
};

TrainingCase Base(const std::string& backend) {
  TrainingCase c;
  c.model = TwoLosses();
  c.backend = backend;
  c.segments = {20 * 4 - 1, 5 * 4 + 2};
  c.evaluations = {23, 4};
  c.replicas = {1};
  return c;
}

using Stages = std::vector<std::vector<std::string>>;
const Stages kAuxFirst = {
    {"fc1", "tanh1", "aux_pre", "aux_fc", "aux"}, {"fc2", "tanh2"}, {"fc3", "loss"}};
const Stages kAuxAlone = {
    {"fc1", "tanh1"}, {"aux_pre", "aux_fc", "aux"}, {"fc2", "tanh2", "fc3", "loss"}};
const Stages kAuxLast = {{"fc1", "tanh1", "fc2", "tanh2"},
                         {"aux_pre", "aux_fc", "aux", "fc3", "loss"}};

TEST_CASE("an auxiliary loss on any stage trains as the serial run does, bit for bit") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const Sequences data(20 * 4);
  struct Plan {
    Stages stages;
    std::vector<int> replicas;
  };
  for (const Plan& plan :
       {Plan{{}, {1}}, Plan{{}, {2}}, Plan{kAuxFirst, {1, 1, 1}}, Plan{kAuxFirst, {2, 1, 3}},
        Plan{kAuxAlone, {1, 1, 1}}, Plan{kAuxAlone, {1, 2, 1}}, Plan{kAuxLast, {1, 1}}}) {
    TrainingCase c = Base(backend);
    c.stages = plan.stages;
    c.replicas = plan.replicas;
    INFO(backend << ", " << c.stages.size() << " stages");
    CHECK(Difference(TrainOnThreads(c, data), TrainSerially(c, data)) == "");
  }
}

TEST_CASE("with one minibatch in flight an auxiliary loss on an earlier stage changes no bit") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const Sequences data(20 * 4);
  const TrainingResult wanted = TrainSerially(Base(backend), data);
  for (const Stages& stages : {kAuxFirst, kAuxAlone, kAuxLast}) {
    TrainingCase c = Base(backend);
    c.stages = stages;
    c.replicas.assign(stages.size(), 1);
    c.in_flight.assign(stages.size(), 1);
    CHECK(Difference(TrainOnThreads(c, data), wanted) == "");
  }
}

TEST_CASE("the auxiliary loss trains, by its weight, and is not the loss reported") {
  const Sequences data(4);
  TrainingCase c = Base("ref");
  c.segments = {4};
  c.evaluations = {};
  c.momentum = c.weight_decay = 0;
  const TrainingResult both = TrainSerially(c, data);
  c.model.replace(c.model.find("0.4"), 3, "0.0");
  const TrainingResult main = TrainSerially(c, data);
  CHECK(both.at("aux_fc.weight") != main.at("aux_fc.weight"));
  CHECK(both.at("fc1.weight") != main.at("fc1.weight"));
  CHECK(both.at("fc2.weight") == main.at("fc2.weight"));
  CHECK(both.at("loss") == main.at("loss"));
}

TEST_CASE("a minibatch divided over replicas makes the same update, whatever targets are ignored") {
  for (const std::string& backend : TrainingBackends()) {
    const Sequences data(8);
    TrainingCase whole = Base(backend);
    whole.batch_size = 8;
    whole.segments = {8};
    whole.evaluations = {};
    TrainingCase divided = whole;
    divided.batch_size = 4;
    divided.replicas = {2};
    const TrainingResult one = TrainOnThreads(whole, data), two = TrainOnThreads(divided, data);
    for (const auto& [name, values] : one) {
      if (name == "loss") continue;
      for (size_t i = 0; i < values.size(); ++i) {
        INFO(backend << " " << name << " " << i);
        CHECK(two.at(name)[i] == Approx(values[i]).epsilon(1e-5).margin(1e-6));
      }
    }
  }
}

TEST_CASE(
    "an auxiliary loss that is not finite stops the run, by name, also in the last minibatch") {
  const Sequences data(4);
  for (const std::string& backend : TrainingBackends()) {
    for (const Stages& stages : {Stages{}, kAuxFirst, kAuxLast}) {
      TrainingCase c = Base(backend);
      c.model = TwoLosses(R"(,"init":{"weight":{"uniform":1e30}})");
      c.segments = {4};
      c.evaluations = {};
      c.stages = stages;
      c.replicas.assign(std::max<size_t>(1, stages.size()), 1);
      CHECK_THAT(ErrorOf([&] { TrainOnThreads(c, data); }, ErrorCode::kInternal),
                 ContainsSubstring("the loss \"aux\" is not finite at minibatch 1"));
    }
  }
}

// Nothing but the look at the losses waits for them: the device brings them long after the rest.
TEST_CASE("a segment whose last loss is not finite ends with that error, however late it comes") {
  const Sequences data(4);
  TrainingCase c = Base("ref");
  c.model = TwoLosses(R"(,"init":{"weight":{"uniform":1e30}})");
  c.segments = {4};
  c.evaluations = {};
  for (const bool training : {true, false}) {
    INFO("training " << training);
    std::string error;
    OnThreads(1, [&](Transport& transport) {
      const DeferredPolicy late{.order = {Queue::kCompute, Queue::kUpload, Queue::kDownload},
                                .last_patience_us = 200'000};
      Session session(c, transport, std::make_unique<DeferredBackend>(MakeBackend("ref", 1), late));
      Loader loader(data, c.batch_size, 2);
      loader.Start({0, 1, 2, 3}, 0, 0, 1, 1);
      Segment segment;
      segment.training = training;
      segment.samples = 4;
      segment.loader = &loader;
      segment.lr = [&c](int64_t b) { return RateOf(c, b); };
      error = ErrorOf([&] { session.worker().Run(segment); }, ErrorCode::kInternal);
    });
    CHECK_THAT(error, ContainsSubstring("loss \"aux\" is not finite at minibatch 1"));
  }
}

}  // namespace
}  // namespace pd
