// Labels, outputs and gradients of different minibatches never meet, whatever the plan.
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "base/random.h"
#include "pipeline/pipelined.h"
#include "pipeline/session.h"
#include "support/catch.h"

namespace pd {
namespace {

// Images that show their label: one quadrant of channel 0 is bright. With `shift`, each sample is
// given the label of the `shift`-th sample after it.
class LabelImages final : public Dataset {
 public:
  explicit LabelImages(int64_t shift) : shift_(shift) {}
  int64_t size() const override { return 120; }
  const std::vector<TensorSpec>& fields() const override { return fields_; }
  void Read(int64_t index, int field, uint64_t /*epoch*/, void* out) const override {
    if (field == 1) {
      const int32_t label = LabelOf(index + shift_);
      std::memcpy(out, &label, sizeof label);
      return;
    }
    auto* pixels = static_cast<float*>(out);
    for (int y = 0; y < 8; ++y) {
      for (int x = 0; x < 8; ++x) {
        pixels[y * 8 + x] = y / 4 * 2 + x / 4 == LabelOf(index) ? 1.0F : 0.0F;
        pixels[64 + y * 8 + x] = 0.5F;
      }
    }
  }

 private:
  static int32_t LabelOf(int64_t index) {
    return static_cast<int32_t>(Philox(5, 0, static_cast<uint64_t>(index))[0] % 4);
  }
  std::vector<TensorSpec> fields_{{{2, 8, 8}, DType::kF32}, {{}, DType::kI32}};
  int64_t shift_;
};

// Weights with which the oracle's model reads the label off such an image. Batch norm is a fixed
// increasing map, since all images hold the same pixels; the branch with the dropout is cut off.
TrainingResult ReadingWeights() {
  TrainingResult w;
  w["conv1.weight"].assign(5 * 2 * 9, 0);
  w["conv1.weight"][4] = 1;  // channel 0, the middle of the kernel
  w["conv1.bias"].assign(5, 0);
  w["conv2.weight"].assign(5 * 5 * 9, 0);
  w["conv2.bias"].assign(5, 0);
  w["conv3.weight"].assign(5 * 15, 0);
  w["conv3.weight"][5] = 1;  // channel 0 of pool, behind the five of drop
  w["conv3.bias"].assign(5, 0);
  w["fc1.weight"].assign(12 * 80, 0);
  for (size_t y = 0; y < 4; ++y) {
    for (size_t x = 0; x < 4; ++x) w["fc1.weight"][(y / 2 * 2 + x / 2) * 80 + y * 4 + x] = 1;
  }
  w["fc1.bias"].assign(12, 0);
  w["fc2.weight"].assign(4 * 12, 0);
  for (size_t k = 0; k < 4; ++k) w["fc2.weight"][k * 12 + k] = 1;
  w["fc2.bias"].assign(4, 0);
  return w;
}

struct Answers {
  int64_t samples = 0, minibatches = 0, last = 0;
  double right = 0;
};

Answers Add(const std::vector<MinibatchMetrics>& metrics) {
  Answers answers;
  for (const MinibatchMetrics& m : metrics) {
    ++answers.minibatches;
    answers.samples += m.samples;
    answers.last = m.samples;
    answers.right += m.right;
  }
  return answers;
}

void CheckAnswers(const Answers& answers, int64_t samples, bool right) {
  CHECK(answers.samples == samples);
  CHECK(answers.minibatches == (samples + 3) / 4);
  CHECK(answers.last == (samples - 1) % 4 + 1);
  if (right) CHECK(answers.right == static_cast<double>(samples));
  // 64 samples and four classes: by chance about a quarter is right.
  if (!right && samples > 60) CHECK(answers.right < 0.6 * static_cast<double>(samples));
}

TEST_CASE("images that show their label are read without a fault on every plan") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  for (NamedCase named : OracleCases(backend)) {
    INFO(backend << " " << named.name);
    named.c.lr = 0;
    named.c.weight_decay = 0;
    named.c.segments = {119, 30, 65};
    named.c.evaluations = {50, 119};
    const int ranks = std::accumulate(named.c.replicas.begin(), named.c.replicas.end(), 0);
    for (const int64_t shift : {0, 1}) {
      const LabelImages data(shift);
      std::vector<Answers> trained, evaluated;
      OnThreads(ranks, [&](Transport& transport) {
        Session session(named.c, transport);
        session.Import(ReadingWeights());
        const bool root = transport.rank() == 0;
        for (size_t i = 0; i < named.c.segments.size(); ++i) {
          const Answers answers = Add(session.Train(data, named.c.segments[i]));
          if (root) trained.push_back(answers);
          if (i >= named.c.evaluations.size()) continue;
          const Answers more = Add(session.Evaluate(data, named.c.evaluations[i]));
          if (root) evaluated.push_back(more);
        }
      });
      for (size_t i = 0; i < trained.size(); ++i)
        CheckAnswers(trained[i], named.c.segments[i], shift == 0);
      for (size_t i = 0; i < evaluated.size(); ++i)
        CheckAnswers(evaluated[i], named.c.evaluations[i], shift == 0);
    }
  }
}

// Without batch norm and dropout, which look at the whole minibatch or its number.
constexpr const char* kPlain = R"({"format":"pipedream.model/1","name":"plain",
  "inputs":[{"name":"image","shape":[2,8,8]},{"name":"label","shape":[],"dtype":"i32"}],
  "layers":[
    {"name":"conv","type":"conv2d","inputs":["image"],"out_channels":4,"kernel":3},
    {"name":"tanh1","type":"tanh"},
    {"name":"flat","type":"flatten"},
    {"name":"fc1","type":"linear","out_features":12},
    {"name":"tanh2","type":"tanh"},
    {"name":"fc2","type":"linear","out_features":12},
    {"name":"tanh3","type":"tanh"},
    {"name":"sum","type":"add","inputs":["tanh3","tanh2"]},
    {"name":"fc3","type":"linear","out_features":4},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc3","label"]}]})";

TrainingCase OneStep(const std::string& backend, int64_t batch_size, std::vector<int> replicas) {
  TrainingCase c;
  c.model = kPlain;
  c.backend = backend;
  c.batch_size = batch_size;
  c.replicas = std::move(replicas);
  c.momentum = 0;
  c.weight_decay = 0;
  c.lr = 1;
  return c;
}

TEST_CASE("one minibatch, one step: the same change on 1, 2 and 4 stages") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const RandomData data = OracleData();
  TrainingCase c = OneStep(backend, 8, {1});
  c.segments = {8};
  const TrainingResult one = TrainOnThreads(c, data);
  TrainingCase still = c;
  still.lr = 0;
  const TrainingResult before = TrainOnThreads(still, data);
  for (const auto& [name, values] : before) {
    INFO(name);
    if (name != "loss") CHECK(values != one.at(name));
  }
  c.replicas = {1, 1};
  c.stages = {{"conv", "tanh1", "flat", "fc1", "tanh2"}, {"fc2", "tanh3", "sum", "fc3", "loss"}};
  CHECK(Difference(TrainOnThreads(c, data), one) == "");
  c.replicas = {1, 1, 1, 1};
  c.stages = {
      {"conv", "tanh1", "flat"}, {"fc1", "tanh2"}, {"fc2", "tanh3"}, {"sum", "fc3", "loss"}};
  CHECK(Difference(TrainOnThreads(c, data), one) == "");
}

TEST_CASE("a minibatch divided among replicas, evenly or not, changes the weights as a whole one") {
  const std::string backend = GENERATE(from_range(TrainingBackends()));
  const RandomData data = OracleData();
  struct Division {
    int64_t samples, batch_size;
    int replicas;
  };
  for (const Division& d : {Division{8, 4, 2},
                            {7, 4, 2},
                            {5, 4, 2},
                            {12, 4, 3},
                            {7, 3, 3},
                            {4, 4, 2} /* one replica has nothing */}) {
    TrainingCase whole = OneStep(backend, d.samples, {1});
    whole.segments = {d.samples};
    TrainingCase divided = OneStep(backend, d.batch_size, {d.replicas});
    divided.segments = {d.samples};
    const TrainingResult wanted = TrainOnThreads(whole, data);
    const TrainingResult got = TrainOnThreads(divided, data);
    for (const auto& [name, values] : wanted) {
      if (name == "loss") continue;
      INFO(backend << " " << d.samples << " samples, " << d.replicas << " replicas: " << name);
      float largest = 0, difference = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        largest = std::max(largest, std::abs(values[i]));
        difference = std::max(difference, std::abs(values[i] - got.at(name)[i]));
      }
      CHECK(difference <= 1e-6F * largest);
    }
  }
}

// One image and one label, always.
class Constant final : public Dataset {
 public:
  int64_t size() const override { return 100; }
  const std::vector<TensorSpec>& fields() const override { return fields_; }
  void Read(int64_t /*index*/, int field, uint64_t /*epoch*/, void* out) const override {
    if (field == 1) {
      std::memset(out, 0, sizeof(int32_t));
    } else {
      std::fill_n(static_cast<float*>(out), 128, 1.0F);
    }
  }

 private:
  std::vector<TensorSpec> fields_{{{2, 8, 8}, DType::kF32}, {{}, DType::kI32}};
};

TEST_CASE("dropout masks are those of the minibatch and the seed, on every plan and replica") {
  TrainingCase c;
  c.model = R"({"format":"pipedream.model/1","name":"drop",
    "inputs":[{"name":"image","shape":[2,8,8]},{"name":"label","shape":[],"dtype":"i32"}],
    "layers":[{"name":"flat","type":"flatten","inputs":["image"]},
              {"name":"drop","type":"dropout"},
              {"name":"fc","type":"linear","out_features":4},
              {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})";
  c.backend = GENERATE(from_range(TrainingBackends()));
  c.lr = 0;
  c.momentum = c.weight_decay = 0;
  c.segments = {48, 32};
  TrainingResult weights;
  for (size_t i = 0; i < 4 * 128; ++i)
    weights["fc.weight"].push_back(ToUniform(Philox(8, 0, i)[0]) - 0.5F);
  weights["fc.bias"].assign(4, 0);
  const auto losses = [&](std::vector<int> replicas, uint64_t seed) {
    c.replicas = std::move(replicas);
    c.seed = seed;
    c.stages.clear();
    if (c.replicas.size() == 2) c.stages = {{"flat", "drop"}, {"fc", "loss"}};
    std::vector<double> all;
    const Constant data;
    OnThreads(std::accumulate(c.replicas.begin(), c.replicas.end(), 0), [&](Transport& transport) {
      Session session(c, transport);
      session.Import(weights);
      for (const int64_t samples : c.segments) {
        for (const MinibatchMetrics& m : session.Train(data, samples)) all.push_back(m.loss_sum);
      }
    });
    return all;
  };
  const std::vector<double> one = losses({1}, 3);
  REQUIRE(one.size() == 20);
  CHECK(std::set<double>(one.begin(), one.end()).size() == one.size());  // no mask comes twice
  CHECK(losses({1}, 3) == one);
  CHECK(losses({2}, 3) == one);
  CHECK(losses({1, 1}, 3) == one);
  CHECK(losses({2, 1}, 3) == one);
  CHECK(losses({3, 2}, 3) == one);
  CHECK(losses({1}, 4) != one);
}

}  // namespace
}  // namespace pd
