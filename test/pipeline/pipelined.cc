#include "pipeline/pipelined.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "pipeline/session.h"

namespace pd {
namespace {

void Append(std::string& text, const std::string& name, const std::vector<float>& values) {
  const auto put = [&](uint64_t n) { text.append(reinterpret_cast<const char*>(&n), sizeof n); };
  put(name.size());
  text += name;
  put(values.size());
  text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

void Merge(const std::string& text, TrainingResult& result) {
  size_t at = 0;
  const auto get = [&] {
    uint64_t n = 0;
    std::memcpy(&n, text.data() + at, sizeof n);
    at += sizeof n;
    return n;
  };
  while (at < text.size()) {
    const size_t length = get();
    const std::string name = text.substr(at, length);
    at += length;
    std::vector<float> values(get());
    std::memcpy(values.data(), text.data() + at, values.size() * sizeof(float));
    at += values.size() * sizeof(float);
    const auto known = result.find(name);
    PD_CHECK(known == result.end() || std::memcmp(known->second.data(), values.data(),
                                                  values.size() * sizeof(float)) == 0,
             "replicas differ in {}", name);
    result[name] = std::move(values);
  }
}

}  // namespace

TrainingResult TrainPipelined(const TrainingCase& c, const Dataset& data, Transport& transport) {
  Session session(c, transport);
  std::vector<float> losses, evaluations;
  for (size_t i = 0; i < c.segments.size(); ++i) {
    for (const MinibatchMetrics& m : session.Train(data, c.segments[i]))
      losses.push_back(static_cast<float>(m.loss_sum / m.counted));
    if (i >= c.evaluations.size()) continue;
    for (const MinibatchMetrics& m : session.Evaluate(data, c.evaluations[i])) {
      evaluations.push_back(static_cast<float>(m.loss_sum / m.counted));
      evaluations.push_back(static_cast<float>(m.right));
    }
  }
  std::string mine;
  for (const auto& [name, values] : session.Export()) Append(mine, name, values);
  if (transport.rank() == 0) {
    Append(mine, "loss", losses);
    if (!c.evaluations.empty()) Append(mine, "evaluation", evaluations);
  }
  TrainingResult result;
  for (const std::string& text : session.comm().GatherAll(mine)) Merge(text, result);
  return result;
}

TrainingResult TrainOnThreads(const TrainingCase& c, const Dataset& data, size_t eager_bytes,
                              LoopbackHub::Copy copy) {
  const int size = std::accumulate(c.replicas.begin(), c.replicas.end(), 0);
  TrainingResult result;
  const auto rank_main = [&](Transport& transport) {
    TrainingResult mine = TrainPipelined(c, data, transport);
    if (transport.rank() == 0) result = std::move(mine);
  };
  OnThreads(size, rank_main, eager_bytes, copy);
  return result;
}

std::string Difference(const TrainingResult& got, const TrainingResult& wanted) {
  if (got.size() != wanted.size())
    return fmt::format("{} tensors, not {}", got.size(), wanted.size());
  for (const auto& [name, values] : wanted) {
    const auto at = got.find(name);
    if (at == got.end()) return fmt::format("no {}", name);
    if (at->second.size() != values.size())
      return fmt::format("{}: {} values, not {}", name, at->second.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::memcmp(&at->second[i], &values[i], sizeof(float)) != 0)
        return fmt::format("{}: element {} is {}, not {}", name, i, at->second[i], values[i]);
    }
  }
  return "";
}

RandomData::RandomData(int64_t size, Shape image, int64_t classes, uint64_t seed)
    : size_(size),
      classes_(classes),
      fields_({{std::move(image), DType::kF32}, {{}, DType::kI32}}),
      seed_(seed) {}

void RandomData::Read(int64_t index, int field, uint64_t /*epoch*/, void* out) const {
  if (field == 1) {
    const auto label = static_cast<int32_t>(Philox(seed_, 1, static_cast<uint64_t>(index))[0] %
                                            static_cast<uint32_t>(classes_));
    std::memcpy(out, &label, sizeof label);
    return;
  }
  for (int64_t i = 0; i < Elements(fields_[0].shape); ++i) {
    const float value = 2 * ToUniform(Philox(seed_, static_cast<uint64_t>(2 + index),
                                             static_cast<uint64_t>(i))[0]) -
                        1;
    std::memcpy(static_cast<std::byte*>(out) + i * static_cast<int64_t>(sizeof value), &value,
                sizeof value);
  }
}

namespace {

// Every kind of edge: `pool` is read by four later layers, and twice by one, so that its
// gradient comes from several stages; the label crosses all of them; batch norm and dropout keep
// state.
constexpr const char* kModel = R"({"format":"pipedream.model/1","name":"oracle",
  "inputs":[{"name":"image","shape":[2,8,8]},{"name":"label","shape":[],"dtype":"i32"}],
  "layers":[
    {"name":"conv1","type":"conv2d","inputs":["image"],"out_channels":5,"kernel":3,"padding":1},
    {"name":"bn1","type":"batch_norm"},
    {"name":"relu1","type":"relu"},
    {"name":"pool","type":"max_pool2d","kernel":2},
    {"name":"conv2","type":"conv2d","out_channels":5,"kernel":3,"padding":1},
    {"name":"tanh2","type":"tanh"},
    {"name":"add","type":"add","inputs":["tanh2","pool"]},
    {"name":"drop","type":"dropout","p":0.3},
    {"name":"cat","type":"concat","inputs":["drop","pool","pool"]},
    {"name":"conv3","type":"conv2d","out_channels":5,"kernel":1},
    {"name":"sum3","type":"add","inputs":["conv3","pool","add"]},
    {"name":"flat","type":"flatten"},
    {"name":"fc1","type":"linear","out_features":12},
    {"name":"relu4","type":"relu"},
    {"name":"fc2","type":"linear","out_features":4},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["fc2","label"]}]})";

// The model's layers cut before the named ones.
std::vector<std::vector<std::string>> CutBefore(const std::vector<std::string>& first_layers) {
  const Model model = Model::Parse(JsonView::Parse(kModel, "model"));
  std::vector<std::vector<std::string>> stages(1);
  for (const Model::Node& node : model.layers()) {
    const std::string& name = node.layer->name();
    if (std::find(first_layers.begin(), first_layers.end(), name) != first_layers.end())
      stages.emplace_back();
    stages.back().push_back(name);
  }
  return stages;
}

}  // namespace

std::vector<NamedCase> OracleCases(const std::string& backend) {
  TrainingCase base;
  base.model = kModel;
  base.backend = backend;
  // 30 minibatches, of which some are short, then one drain and more: rounds that are not full, a
  // version rule that starts anew.
  base.segments = {30 * 4 - 1, 7 * 4 + 2};
  std::vector<NamedCase> cases;
  const auto add = [&](const std::string& name, const std::vector<std::string>& cuts,
                       std::vector<int> replicas, std::vector<int> in_flight = {}) {
    TrainingCase c = base;
    c.stages = CutBefore(cuts);
    c.replicas = std::move(replicas);
    c.in_flight = std::move(in_flight);
    cases.push_back({name, c});
  };
  const std::vector<std::string> two = {"drop"}, three = {"conv2", "cat"},
                                 four = {"conv2", "drop", "flat"};
  add("1", {}, {1});
  add("1-1", two, {1, 1});
  add("1-1-1", three, {1, 1, 1});
  add("1-1-1-1", four, {1, 1, 1, 1});
  add("2", {}, {2});
  add("3", {}, {3});
  add("2-1", two, {2, 1});
  add("1-2", two, {1, 2});
  add("2-2", two, {2, 2});
  add("3-2", two, {3, 2});
  add("2-3-1", three, {2, 3, 1});
  add("1-1 deeper", two, {1, 1}, {4, 2});
  add("2-3-1 deeper", three, {2, 3, 1}, {6, 2, 1});
  add("1-1-1 skips", {"cat", "sum3"}, {1, 1, 1});
  add("2-1-2 skips", {"cat", "sum3"}, {2, 1, 2});
  add("model parallel", two, {1, 1}, {1, 1});
  add("4 on machines of 2", {}, {4});
  add("2-2 on machines of 2", two, {2, 2});
  add("4-1 on machines of 2", two, {4, 1});
  for (size_t i = cases.size() - 3; i < cases.size(); ++i) cases[i].c.machine_ranks = 2;
  return cases;
}

RandomData OracleData() { return {30 * 4, {2, 8, 8}, 4, 11}; }

}  // namespace pd
