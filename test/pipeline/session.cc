#include "pipeline/session.h"

#include <numeric>
#include <thread>

#include "base/error.h"
#include "data/loader.h"
#include "transport/loopback/loopback.h"

namespace pd {
namespace {

// The first samples of a data set.
class Front final : public Dataset {
 public:
  Front(const Dataset& whole, int64_t size) : whole_(whole), size_(size) {}
  int64_t size() const override { return size_; }
  const std::vector<TensorSpec>& fields() const override { return whole_.fields(); }
  void Read(int64_t index, int field, uint64_t epoch, void* out) const override {
    whole_.Read(index, field, epoch, out);
  }

 private:
  const Dataset& whole_;
  int64_t size_;
};

std::pair<int, int> RoleOf(const PipelineSpec& spec, const Transport& transport) {
  std::pair<int, int> role{-1, -1};
  int ranks = 0;
  for (size_t s = 0; s < spec.ranks.size(); ++s) {
    for (size_t r = 0; r < spec.ranks[s].size(); ++r, ++ranks) {
      if (spec.ranks[s][r] == transport.rank()) role = {static_cast<int>(s), static_cast<int>(r)};
    }
  }
  PD_CHECK(ranks == transport.size(), "{} ranks for a plan of {}", transport.size(), ranks);
  return role;
}

}  // namespace

PipelineSpec SpecOf(const TrainingCase& c, const Model& model, const Cut& cut) {
  PipelineSpec spec;
  spec.model = &model;
  spec.cut = &cut;
  spec.shape = ShapeOf(c);
  spec.machine_ranks = c.machine_ranks;
  spec.batch_size = c.batch_size;
  spec.seed = c.seed;
  spec.momentum = c.momentum;
  spec.weight_decay = c.weight_decay;
  spec.recompute = c.recompute;
  for (const std::vector<int64_t>& sizes : {c.segments, c.evaluations}) {
    for (const int64_t samples : sizes) {
      if (samples % c.batch_size != 0) spec.short_batches.push_back(samples % c.batch_size);
    }
  }
  int rank = 0;
  for (const PipelineShape::Stage& stage : spec.shape.stages) {
    spec.ranks.emplace_back();
    for (int r = 0; r < stage.replicas; ++r) spec.ranks.back().push_back(rank++);
  }
  return spec;
}

Session::Session(const TrainingCase& c, Transport& transport, std::unique_ptr<Backend> backend)
    : case_(c),
      model_(Model::Parse(JsonView::Parse(c.model, "model"))),
      cut_(c.stages.empty() ? MakeWholeCut(model_) : MakeCut(model_, c.stages)),
      spec_(SpecOf(c, model_, cut_)),
      comm_(transport, {.report_s = 20, .fail_s = 60}),
      backend_(backend != nullptr ? std::move(backend) : BackendOf(c, transport.rank())),
      collector_(spec_, comm_, cut_.stage_of[model_.main_loss()]) {
  const auto [stage, replica] = RoleOf(spec_, transport);
  spec_.direct_messages = transport.takes_device_memory();
  worker_ = std::make_unique<Worker>(spec_, *backend_, comm_, stage, replica);
}

std::vector<MinibatchMetrics> Session::Run(const Dataset& data, int64_t samples, bool training,
                                           Hook hook) {
  const int64_t count = (samples + case_.batch_size - 1) / case_.batch_size;
  Segment segment;
  segment.training = training;
  segment.samples = samples;
  segment.first_number = number_;
  segment.lr = [this](int64_t b) { return RateOf(case_, b); };
  segment.between_actions = std::move(hook);
  const Front front(data, samples);
  Loader loader(front, case_.batch_size, 2);
  if (worker_->stage() == 0) {
    std::vector<int64_t> order(static_cast<size_t>(samples));
    std::iota(order.begin(), order.end(), int64_t{0});
    loader.Start(order, 0, worker_->replica(), spec_.shape.stages[0].replicas, count);
    segment.loader = &loader;
  }
  ++segment_;
  std::vector<MinibatchMetrics> all;
  if (comm_.rank() == 0) collector_.Begin(segment_, count);
  worker_->Run(segment);
  while (comm_.rank() == 0) {
    const MinibatchMetrics* metrics = collector_.Wait();
    if (metrics == nullptr) break;
    all.push_back(*metrics);
  }
  comm_.Barrier();
  if (training) number_ += count;
  return all;
}

std::vector<MinibatchMetrics> Session::Train(const Dataset& data, int64_t samples, Hook hook) {
  return Run(data, samples, true, std::move(hook));
}

std::vector<MinibatchMetrics> Session::Evaluate(const Dataset& data, int64_t samples) {
  return Run(data, samples, false, nullptr);
}

void Session::Import(const TrainingResult& values) {
  const WeightLayout& weights = worker_->setup().weights();
  const auto import = [&](Worker::Kind kind, const std::vector<WeightLayout::Entry>& entries) {
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto at = values.find(entries[i].name);
      if (at == values.end()) continue;
      PD_CHECK(static_cast<int64_t>(at->second.size()) == Elements(entries[i].spec->shape),
               "{} values for {}", at->second.size(), entries[i].name);
      worker_->Import(kind, i, at->second.data());
    }
  };
  import(Worker::Kind::kParameters, weights.params());
  import(Worker::Kind::kState, weights.state());
}

TrainingResult Session::Export() const {
  TrainingResult result;
  const WeightLayout& weights = worker_->setup().weights();
  const auto dump = [&](Worker::Kind kind, const std::vector<WeightLayout::Entry>& entries,
                        const std::string& suffix) {
    for (size_t i = 0; i < entries.size(); ++i) {
      std::vector<float> dense(static_cast<size_t>(Elements(entries[i].spec->shape)));
      worker_->Export(kind, i, dense.data());
      result[entries[i].name + suffix] = std::move(dense);
    }
  };
  dump(Worker::Kind::kParameters, weights.params(), "");
  dump(Worker::Kind::kState, weights.state(), "");
  if (case_.momentum != 0) dump(Worker::Kind::kMomentum, weights.params(), ".momentum");
  return result;
}

void OnThreads(int ranks, const std::function<void(Transport&)>& rank_main, size_t eager_bytes,
               LoopbackHub::Copy copy) {
  LoopbackHub hub(ranks, eager_bytes, copy);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::atomic<int> first{-1};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        rank_main(hub.transport(rank));
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
        int none = -1;
        if (!first.compare_exchange_strong(none, rank)) return;
        try {
          hub.transport(rank).Abort(1);
        } catch (const Error&) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first >= 0) std::rethrow_exception(errors[static_cast<size_t>(first)]);
}

}  // namespace pd
