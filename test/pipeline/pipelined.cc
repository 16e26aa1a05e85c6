#include "pipeline/pipelined.h"

#include <cstring>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "data/loader.h"
#include "pipeline/worker.h"
#include "train/metrics.h"
#include "transport/loopback/loopback.h"

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

// The first samples of a data set.
class Front final : public Dataset {
 public:
  Front(const Dataset& whole, int64_t size) : whole_(whole), size_(size) {}
  int64_t size() const override { return size_; }
  const std::vector<TensorSpec>& fields() const override { return whole_.fields(); }
  int64_t classes() const override { return whole_.classes(); }
  void Read(int64_t index, int field, uint64_t epoch, void* out) const override {
    whole_.Read(index, field, epoch, out);
  }

 private:
  const Dataset& whole_;
  int64_t size_;
};

std::string Dump(const Worker& worker, bool momentum) {
  std::string text;
  const WeightLayout& weights = worker.setup().weights();
  const auto dump = [&](Worker::Kind kind, const std::vector<WeightLayout::Entry>& entries,
                        const std::string& suffix) {
    for (size_t i = 0; i < entries.size(); ++i) {
      std::vector<float> dense(static_cast<size_t>(Elements(entries[i].spec->shape)));
      worker.Export(kind, i, dense.data());
      Append(text, entries[i].name + suffix, dense);
    }
  };
  dump(Worker::Kind::kParameters, weights.params(), "");
  dump(Worker::Kind::kState, weights.state(), "");
  if (momentum) dump(Worker::Kind::kMomentum, weights.params(), ".momentum");
  return text;
}

}  // namespace

TrainingResult TrainPipelined(const TrainingCase& c, const Dataset& data, Transport& transport) {
  const Model model = Model::Parse(JsonView::Parse(c.model, "model"));
  const Cut cut = c.stages.empty() ? MakeWholeCut(model) : MakeCut(model, c.stages);
  PipelineSpec spec;
  spec.model = &model;
  spec.cut = &cut;
  spec.shape = ShapeOf(c);
  spec.batch_size = c.batch_size;
  spec.seed = c.seed;
  spec.momentum = c.momentum;
  spec.weight_decay = c.weight_decay;
  for (const int64_t samples : c.segments) {
    if (samples % c.batch_size != 0) spec.short_batches.push_back(samples % c.batch_size);
  }
  int rank = 0;
  int stage = -1, replica = -1;
  for (size_t s = 0; s < spec.shape.stages.size(); ++s) {
    spec.ranks.emplace_back();
    for (int r = 0; r < spec.shape.stages[s].replicas; ++r, ++rank) {
      spec.ranks.back().push_back(rank);
      if (rank == transport.rank()) {
        stage = static_cast<int>(s);
        replica = r;
      }
    }
  }
  PD_CHECK(rank == transport.size(), "{} ranks for a plan of {}", transport.size(), rank);

  Comm comm(transport, {.report_s = 20, .fail_s = 60});
  const std::unique_ptr<Backend> backend = MakeBackend(c.backend, 1);
  Worker worker(spec, *backend, comm, stage, replica);
  const int loss_stage = cut.stage_of[model.num_layers() - 1];
  MetricsCollector collector(spec, comm, loss_stage);
  std::vector<float> losses;
  int64_t number = 0;
  for (size_t i = 0; i < c.segments.size(); ++i) {
    const int64_t samples = c.segments[i];
    const int64_t count = (samples + c.batch_size - 1) / c.batch_size;
    Segment segment;
    segment.samples = samples;
    segment.first_number = number;
    segment.lr = [&](int64_t b) { return RateOf(c, b); };
    std::vector<int64_t> order(static_cast<size_t>(samples));
    std::iota(order.begin(), order.end(), int64_t{0});
    const Front front(data, samples);
    Loader loader(front, c.batch_size, 2);
    if (stage == 0) {
      loader.Start(order, 0, replica, spec.shape.stages[0].replicas, count);
      segment.loader = &loader;
    }
    if (transport.rank() == 0) collector.Begin(static_cast<int64_t>(i) + 1, count);
    worker.Run(segment);
    number += count;
    while (transport.rank() == 0) {
      const MinibatchMetrics* metrics = collector.Wait();
      if (metrics == nullptr) break;
      losses.push_back(
          static_cast<float>(metrics->loss_sum / static_cast<double>(metrics->samples)));
    }
    comm.Barrier();
  }
  std::string mine = Dump(worker, c.momentum != 0);
  if (transport.rank() == 0) Append(mine, "loss", losses);
  TrainingResult result;
  for (const std::string& text : comm.GatherAll(mine)) Merge(text, result);
  return result;
}

TrainingResult TrainOnThreads(const TrainingCase& c, const Dataset& data, size_t eager_bytes) {
  const int size = std::accumulate(c.replicas.begin(), c.replicas.end(), 0);
  LoopbackHub hub(size, eager_bytes);
  std::vector<TrainingResult> results(static_cast<size_t>(size));
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        results[static_cast<size_t>(rank)] = TrainPipelined(c, data, hub.transport(rank));
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
  return results[0];
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

// Every kind of edge: `pool` is read by three later layers, so that its gradient comes from several
// stages; the label crosses all of them; batch norm and dropout keep state.
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
    {"name":"cat","type":"concat","inputs":["drop","pool"]},
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
  add("model parallel", two, {1, 1}, {1, 1});
  return cases;
}

RandomData OracleData() { return {30 * 4, {2, 8, 8}, 4, 11}; }

}  // namespace pd
