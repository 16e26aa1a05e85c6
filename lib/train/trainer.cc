// The life of a run: agree, read the data, take the memory, then epochs of segments. A segment is a
// stretch of minibatches between two drains; lib/pipeline/worker.cc runs it.
#include "train/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "pipeline/worker.h"
#include "train/checkpoint.h"
#include "train/devices.h"
#include "train/metrics.h"
#include "train/report.h"
#include "train/steady_timer.h"
#include "train/trace_file.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReadAhead = 3;
constexpr size_t kTraceSlices = 1 << 18;

// The data set of a run as every rank needs to know it.
struct DataInfo {
  int64_t train = 0, test = 0;
  std::string description, metadata;
};

class Run {
 public:
  Run(const TrainArguments& arguments, Transport& transport)
      : comm_(transport),
        agreement_(AgreeAtStart(arguments, comm_, transport.host())),
        config_(agreement_.config),
        cut_(CutOf(agreement_)),
        spec_(MakeSpec(agreement_, cut_)),
        role_(RoleOf(agreement_.plan, comm_.rank())),
        progress_(config_.progress),
        losses_(*spec_.model),
        steady_(spec_.shape) {}

  int Execute(const std::function<void(const std::exception&)>& on_failure) {
    try {
      return OnDevice([this] { return Train(); });
    } catch (const CollectiveError&) {
      comm_.Stop();  // before the memory that messages arrive in goes away
      throw;
    } catch (const std::exception& e) {
      if (on_failure) on_failure(e);
      comm_.Stop();
      throw;
    }
  }

 private:
  bool IsRoot() const { return comm_.rank() == 0; }
  int64_t MinibatchesPerEpoch() const {
    return (epoch_samples_ + spec_.batch_size - 1) / spec_.batch_size;
  }

  // In a job of several ranks an error of this rank's device says whose it is.
  template <typename F>
  auto OnDevice(F work) -> decltype(work()) {
    try {
      return work();
    } catch (const CollectiveError&) {
      throw;
    } catch (const Error& e) {
      // A device that cannot be had may be named wrongly: then rank 0 speaks for all.
      const bool local =
          e.code() == ErrorCode::kDevice || (backend_ == nullptr && comm_.rank() > 0);
      if (!role_ || comm_.size() == 1 || !local) throw;
      throw RankError(e.code(),
                      fmt::format("rank {} ({}, {}): {}", comm_.rank(),
                                  agreement_.hosts[static_cast<size_t>(comm_.rank())],
                                  backend_ ? backend_->label() : config_.device, e.what()));
    }
  }

  int Train();
  void CheckWorld() const;
  void OpenTheData();
  void TakeDevices();
  void TakeMemory();
  void Announce();
  void TrainEpoch();
  void TrainSegment(int64_t first, int64_t end, const std::vector<int64_t>& order);
  void Evaluate(int64_t minibatch);
  void AppendTrace(std::string_view prefix);
  void BetweenActions();
  void TakeMetrics(const MinibatchMetrics& metrics);
  bool IsRehearsal() const { return config_.device == "timed"; }  // nothing to evaluate
  bool NamesTarget() const { return config_.target_accuracy > 0 || config_.target_perplexity > 0; }
  bool HasTarget() const { return NamesTarget() && !IsRehearsal(); }
  bool Reached(const LossMeans& test) const;
  void LogTrain();
  RankTotals Totals() const;
  int Finish();
  void ReportEnd(const std::vector<std::string>& packed);
  double TimeS() const { return NsToS(NowNs() - start_ns_); }

  Comm comm_;
  Agreement agreement_;
  const TrainConfig& config_;
  Cut cut_;
  PipelineSpec spec_;
  std::optional<std::pair<int, int>> role_;
  DataInfo data_;
  DataSource source_;
  std::unique_ptr<Loader> train_loader_, test_loader_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<CheckpointWriter> checkpoints_;
  RankInfo info_;  // of this one
  std::vector<RankInfo> ranks_;

  // Training so far, the same on every rank.
  int64_t epoch_samples_ = 0;
  int64_t epoch_ = 0, segment_ = 0, trained_ = 0;
  bool reached_ = false;
  RankTotals totals_;
  int64_t base_memory_bytes_ = 0;

  // Tracing.
  Trace compute_trace_{0}, message_trace_{0};
  std::unique_ptr<TraceFile> trace_file_;
  int64_t clock_offset_ns_ = 0;

  // Rank 0 only.
  std::unique_ptr<MetricsWriter> writer_;
  std::unique_ptr<MetricsCollector> collector_;
  Progress progress_;
  int64_t start_ns_ = 0, segment_start_ns_ = 0, train_ns_ = 0;
  LossSums losses_;                // since the last train event
  std::optional<LossMeans> test_;  // of the last evaluation
  double time_to_accuracy_s_ = -1;
  int64_t metrics_minibatch_ = 0, logged_ns_ = 0;
  SteadyTimer steady_;
};

int Run::Train() {
  CheckWorld();
  OpenTheData();
  TakeDevices();
  TakeMemory();
  Announce();
  for (epoch_ = 0; epoch_ < config_.epochs && !reached_; ++epoch_) TrainEpoch();
  return Finish();
}

void Run::CheckWorld() const {
  const int needed = agreement_.plan.world_size();
  if (comm_.size() == needed) return;
  throw CollectiveError(ErrorCode::kInvalidInput,
                        fmt::format("the plan needs {} workers, started with {}: use mpirun -np {}",
                                    needed, comm_.size(), needed));
}

void Run::OpenTheData() {
  // Reading data and taking memory may be slow.
  comm_.SetLimits({.report_s = 60, .fail_s = 10 * config_.stall_timeout});
  std::vector<DataField> fields;
  for (const Model::Input& input : spec_.model->inputs()) {
    fields.push_back({input.name, input.spec, input.limit, input.target});
  }
  const bool reads = role_ && role_->first == 0;
  const std::vector<std::string> all = Together(comm_, [&] {
    if (!reads) return std::string();
    source_ = OpenData(config_.data, fields, config_.data_options, spec_.seed);
    const int64_t train = source_.train->size();
    PD_REQUIRE(train > 0, "{}: expected training samples, found none", config_.data);
    PD_REQUIRE(!HasTarget() || source_.test->size() > 0, "{}: needs test samples, {} has none",
               config_.target_accuracy > 0 ? "--target-accuracy" : "--target-perplexity",
               config_.data);
    PD_REQUIRE(config_.target_perplexity == 0 || IsRehearsal() || losses_.has_perplexity(),
               "--target-perplexity: expected a model whose targets are sequences, found \"{}\"",
               spec_.model->name());
    return Json({{"train", train},
                 {"test", source_.test->size()},
                 {"about", source_.description},
                 {"metadata", source_.metadata}})
        .dump();
  });
  const std::vector<int>& readers = spec_.ranks[0];
  for (const int r : readers) {
    if (all[static_cast<size_t>(r)] == all[static_cast<size_t>(readers[0])]) continue;
    throw CollectiveError(
        ErrorCode::kInvalidInput,
        fmt::format("{}: rank {} reads other data than rank {}", config_.data, r, readers[0]));
  }
  const Json info = Json::parse(all[static_cast<size_t>(readers[0])]);
  data_ = {.train = info["train"],
           .test = info["test"],
           .description = info["about"],
           .metadata = info["metadata"]};
  if (IsRehearsal()) data_.test = 0;
  epoch_samples_ = data_.train;
  if (config_.minibatches > 0 && config_.minibatches < MinibatchesPerEpoch()) {
    epoch_samples_ = config_.minibatches * spec_.batch_size;
  }
  if (config_.eval_minibatches > 0 &&
      config_.eval_minibatches <= (data_.test - 1) / spec_.batch_size) {
    data_.test = config_.eval_minibatches * spec_.batch_size;
  }
  for (const int64_t rest : {epoch_samples_ % spec_.batch_size, data_.test % spec_.batch_size}) {
    const auto& known = spec_.short_batches;
    if (rest > 0 && std::find(known.begin(), known.end(), rest) == known.end()) {
      spec_.short_batches.push_back(rest);
    }
  }
}

void Run::TakeDevices() {
  const std::vector<std::string> machines =
      Together(comm_, [&] { return role_ ? MachineId() : std::string(); });
  const auto me = static_cast<size_t>(comm_.rank());
  const auto local_rank =
      std::count(machines.begin(), machines.begin() + comm_.rank(), machines[me]);
  const std::vector<std::string> direct = Together(comm_, [&] {
    if (!role_) return "yes";
    OnDevice([&] { backend_ = MakeTrainingBackend(config_, static_cast<int>(local_rank), info_); });
    return backend_->on_device() && comm_.takes_device_memory() ? "yes" : "no";
  });
  spec_.direct_messages = std::count(direct.begin(), direct.end(), "no") == 0;
}

void Run::TakeMemory() {
  info_.rank = comm_.rank();
  info_.host = agreement_.hosts[static_cast<size_t>(comm_.rank())];
  const std::vector<std::string> all = Together(comm_, [&] {
    if (!role_) return info_.Pack();
    info_.cores = UsableCores();
    info_.host_cores = HostCores();
    info_.machine = MachineId();
    OnDevice([&] {
      worker_ = std::make_unique<Worker>(spec_, *backend_, comm_, role_->first, role_->second);
    });
    if (role_->first == 0) {
      train_loader_ = std::make_unique<Loader>(*source_.train, spec_.batch_size, kReadAhead,
                                               source_.decode_threads);
      test_loader_ = std::make_unique<Loader>(*source_.test, spec_.batch_size, kReadAhead,
                                              source_.decode_threads);
    }
    info_.stage = role_->first;
    info_.replica = role_->second;
    info_.weights = fmt::format("{:016x}", worker_->setup().weights().Digest());
    info_.in_flight = spec_.shape.stages[static_cast<size_t>(role_->first)].in_flight;
    const auto training = static_cast<int64_t>(worker_->setup().Memory(spec_).of_backend());
    info_.memory_bytes =
        backend_->on_device() ? static_cast<int64_t>(backend_->device_bytes()) : training;
    // Libraries, kernels compiled and samples read, and what training has taken; or of the device.
    base_memory_bytes_ = backend_->on_device() ? info_.memory_bytes : ResidentMemoryBytes();
    if (!IsRehearsal()) base_memory_bytes_ -= training;
    return info_.Pack();
  });
  if (!role_) base_memory_bytes_ = ResidentMemoryBytes();
  ResetPeakMemory();  // Unpacking the samples took more for a while.
  for (const std::string& text : all) ranks_.push_back(RankInfo::Unpack(text));
  CompareReplicas(ranks_);
  // From here on every wait is for another worker's step, or on rank 0 for a loss. Another idle
  // rank waits for whole epochs; the others notice when one of them is gone.
  comm_.SetRole(ranks_[static_cast<size_t>(comm_.rank())].Role());
  const double limit = config_.stall_timeout;
  comm_.SetLimits(role_ || IsRoot()
                      ? StallLimits{.report_s = std::min(10.0, limit / 2), .fail_s = limit}
                      : StallLimits{.report_s = 1e9, .fail_s = 1e9});
}

void Run::Announce() {
  if (!config_.trace.empty()) {
    clock_offset_ns_ = ClockOffsetNs(comm_);
    compute_trace_ = Trace(kTraceSlices);
    message_trace_ = Trace(kTraceSlices);
    if (worker_) worker_->SetTrace(&compute_trace_);
    comm_.SetTrace(&message_trace_);
  }
  Together(comm_, [&] {
    if (!config_.checkpoint.empty()) {
      checkpoints_ = std::make_unique<CheckpointWriter>(config_.checkpoint, agreement_.plan, comm_,
                                                        worker_.get(), config_.momentum != 0);
    }
    if (!IsRoot()) return std::string();
    writer_ = std::make_unique<MetricsWriter>(config_.metrics);
    if (!config_.trace.empty()) {
      std::vector<std::string> roles;
      for (const RankInfo& r : ranks_) roles.push_back(r.Role());
      trace_file_ = std::make_unique<TraceFile>(config_.trace, roles);
    }
    return std::string();
  });
  if (!IsRoot()) return;
  collector_ = std::make_unique<MetricsCollector>(
      spec_, comm_, cut_.stage_of[static_cast<size_t>(spec_.model->main_loss())]);
  Json event = {{"event", "start"},
                {"plan_digest", agreement_.plan_digest},
                {"config_digest", agreement_.config_digest},
                {"binary_digest", agreement_.binary_digest},
                {"hosts", agreement_.hosts}};
  Json devices = Json::array(), batches = Json::array();
  for (const RankInfo& r : ranks_) {
    devices.push_back(r.stage < 0 ? Json(nullptr) : Json(r.device));
  }
  for (const auto& stage : spec_.shape.stages) batches.push_back(stage.replicas * spec_.batch_size);
  event["devices"] = devices;
  event["threads"] = config_.threads;
  event["seed"] = config_.seed;
  event["effective_batch"] = batches;
  event["train_samples"] = data_.train;
  event["test_samples"] = data_.test;
  event["data"] = data_.description;
  event["config"] = Json::parse(config_.ToJson());
  writer_->Write(event.dump());
  Log("data: {}", data_.description);
  if (NamesTarget() && IsRehearsal()) Log("device timed evaluates nothing: the target is left out");
  Log("ranks:\n{}", StartTable(agreement_.plan, ranks_));
  for (size_t s = 0; s < spec_.shape.stages.size(); ++s) {
    const int replicas = spec_.shape.stages[s].replicas;
    Log("stage {}: effective batch {}, learning rate {}", s, replicas * spec_.batch_size,
        config_.lr * (config_.lr_scaling == "linear" ? replicas : 1));
  }
  for (const std::string& note : DeviceNotes(ranks_, config_.device)) Log("{}", note);
  for (const std::string& note : MessageNotes(ranks_, spec_.direct_messages)) Log("{}", note);
  for (const std::string& warning : DeviceWarnings(ranks_, config_.tf32)) Warn("{}", warning);
  for (const std::string& warning : MemoryWarnings(agreement_.plan, ranks_)) Warn("{}", warning);
  for (const std::string& warning : ThreadWarnings(ranks_)) Warn("{}", warning);
  if (backend_ == nullptr) return;  // an idle rank 0 knows no device
  for (const std::string& warning : CostWarnings(agreement_, *backend_)) Warn("{}", warning);
}

void Run::TrainEpoch() {
  const bool reads = role_ && role_->first == 0;
  const std::vector<int64_t> order =
      reads ? EpochOrder(spec_.seed, static_cast<uint64_t>(epoch_), data_.train)
            : std::vector<int64_t>();
  const int64_t count = MinibatchesPerEpoch();
  const int64_t step = config_.eval_every > 0 ? config_.eval_every : count;
  int64_t end = 0;
  for (int64_t first = 0; first < count && !reached_; first += step) {
    end = std::min(count, first + step);
    TrainSegment(first, end, order);
    Evaluate(end);
    if (IsRoot() && reached_ && losses_.samples() > 0) LogTrain();
  }
  if (checkpoints_ == nullptr) return;
  checkpoints_->Begin({.epoch = epoch_ + 1,
                       .minibatch = end,
                       .minibatches = trained_,
                       .train_time_s = NsToS(train_ns_),
                       .plan_digest = agreement_.plan_digest,
                       .config = config_.ToJson(),
                       .data = data_.metadata});
}

void Run::TrainSegment(int64_t first, int64_t end, const std::vector<int64_t>& order) {
  ++segment_;
  const int64_t per_epoch = MinibatchesPerEpoch();
  Segment segment;
  segment.samples = std::min(epoch_samples_, end * spec_.batch_size) - first * spec_.batch_size;
  segment.first_number = trained_;
  segment.between_actions = [this] { BetweenActions(); };
  if (IsRoot()) {
    if (start_ns_ == 0) start_ns_ = logged_ns_ = NowNs();
    segment_start_ns_ = NowNs();
    metrics_minibatch_ = first;
    steady_.Begin(end - first);
    collector_->Begin(segment_, end - first);
  }
  if (worker_) {
    const int replicas = spec_.shape.stages[static_cast<size_t>(role_->first)].replicas;
    const double scale = config_.lr_scaling == "linear" ? replicas : 1;
    segment.lr = [this, first, per_epoch, scale](int64_t b) {
      const double epoch = static_cast<double>(epoch_) +
                           static_cast<double>(first + b) / static_cast<double>(per_epoch);
      return scale * config_.lr_schedule.At(config_.lr, epoch, static_cast<double>(config_.epochs),
                                            1.0 / static_cast<double>(per_epoch));
    };
    if (role_->first == 0) {
      train_loader_->Start(order, static_cast<uint64_t>(epoch_), first + role_->second,
                           spec_.shape.stages[0].replicas, end);
      segment.loader = train_loader_.get();
    }
    const int64_t idle = worker_->idle_ns(), computed = worker_->compute_ns();
    const int64_t sent = comm_.bytes_sent(), received = comm_.bytes_received();
    worker_->Run(segment);
    totals_.compute_ms += NsToMs(worker_->compute_ns() - computed);
    totals_.idle_ms += NsToMs(worker_->idle_ns() - idle);
    totals_.bytes_sent += comm_.bytes_sent() - sent;
    totals_.bytes_received += comm_.bytes_received() - received;
  }
  trained_ += end - first;
  while (IsRoot()) {
    const MinibatchMetrics* metrics = collector_->Wait();
    if (metrics == nullptr) break;
    TakeMetrics(*metrics);
  }
  comm_.Barrier();
  if (IsRoot()) train_ns_ += NowNs() - segment_start_ns_;
  AppendTrace("");
}

void Run::AppendTrace(std::string_view prefix) {
  if (config_.trace.empty()) return;
  const std::vector<std::string> slices =
      comm_.Gather(TraceFile::Pack(compute_trace_, message_trace_, clock_offset_ns_));
  if (IsRoot()) trace_file_->Append(slices, prefix);
}

void Run::BetweenActions() {
  if (checkpoints_) checkpoints_->Poll();
  if (!IsRoot()) return;
  while (const MinibatchMetrics* metrics = collector_->Poll()) TakeMetrics(*metrics);
}

void Run::TakeMetrics(const MinibatchMetrics& metrics) {
  ++metrics_minibatch_;
  steady_.Minibatch(metrics.time_ns);
  losses_.Add(metrics);
  if (metrics_minibatch_ % config_.log_every == 0 || metrics_minibatch_ == MinibatchesPerEpoch())
    LogTrain();
}

void Run::LogTrain() {
  const int64_t now = NowNs();
  const double loss = losses_.Means().loss;
  const double rate =
      static_cast<double>(losses_.samples()) / std::max(1e-9, NsToS(now - logged_ns_));
  writer_->Train(epoch_ + 1, metrics_minibatch_, loss, rate, TimeS());
  const double done = static_cast<double>(epoch_ * MinibatchesPerEpoch() + metrics_minibatch_);
  const double left = static_cast<double>(config_.epochs * MinibatchesPerEpoch()) - done;
  progress_.Show(epoch_ + 1, config_.epochs, metrics_minibatch_, MinibatchesPerEpoch(), loss,
                 test_ ? test_->accuracy : -1, rate, TimeS() / done * left);
  losses_.Clear();
  logged_ns_ = now;
}

void Run::Evaluate(int64_t minibatch) {
  if (data_.test == 0) return;
  ++segment_;
  const int64_t begin = NowNs();
  Segment segment;
  segment.training = false;
  segment.samples = data_.test;
  LossSums sums(*spec_.model);
  const int64_t minibatches = (data_.test + spec_.batch_size - 1) / spec_.batch_size;
  if (IsRoot()) collector_->Begin(segment_, minibatches);
  const auto take = [&](const MinibatchMetrics* metrics) {
    if (metrics == nullptr) return false;
    sums.Add(*metrics);
    return true;
  };
  segment.between_actions = [&] {
    if (checkpoints_) checkpoints_->Poll();
    while (IsRoot() && take(collector_->Poll())) {
    }
  };
  if (worker_) {
    if (role_->first == 0) {
      std::vector<int64_t> order(static_cast<size_t>(data_.test));
      for (int64_t i = 0; i < data_.test; ++i) {
        order[static_cast<size_t>(i)] = i * source_.test->size() / data_.test;
      }
      test_loader_->Start(std::move(order), 0, role_->second, spec_.shape.stages[0].replicas,
                          minibatches);
      segment.loader = test_loader_.get();
    }
    worker_->Run(segment);
  }
  while (IsRoot() && take(collector_->Wait())) {
  }
  if (IsRoot()) {
    test_ = sums.Means();
    writer_->Eval(epoch_ + 1, minibatch, *test_, TimeS(), NsToS(train_ns_));
    progress_.Clear();
    Log("epoch {}, minibatch {}: test loss {:.4f}, accuracy {:.4f}{}, {:.1f} s of training",
        epoch_ + 1, minibatch, test_->loss, test_->accuracy,
        test_->perplexity ? fmt::format(", perplexity {:.2f}", *test_->perplexity) : "",
        NsToS(train_ns_));
    reached_ = Reached(*test_);
    if (reached_) {
      time_to_accuracy_s_ = NsToS(train_ns_);
      Log("target reached after {:.1f} s of training", time_to_accuracy_s_);
    }
  }
  reached_ = comm_.Broadcast(reached_ ? "1" : "0", 0) == "1";
  AppendTrace("evaluation ");
  logged_ns_ += NowNs() - begin;  // the rate of the next train event leaves the evaluation out
}

bool Run::Reached(const LossMeans& test) const {
  if (config_.target_accuracy > 0 && test.accuracy >= config_.target_accuracy) return true;
  return config_.target_perplexity > 0 && test.perplexity &&
         *test.perplexity <= config_.target_perplexity;
}

RankTotals Run::Totals() const {
  RankTotals totals = totals_;
  totals.rank = comm_.rank();
  totals.stage = role_ ? role_->first : -1;
  totals.base_memory_bytes = base_memory_bytes_;
  totals.peak_memory_bytes = backend_ && backend_->on_device()
                                 ? static_cast<int64_t>(backend_->device_bytes())
                                 : PeakMemoryBytes();
  return totals;
}

int Run::Finish() {
  if (const int64_t dropped = compute_trace_.dropped() + message_trace_.dropped(); dropped > 0) {
    Warn("the trace lacks {} slices: {} fit between two evaluations; see --eval-every", dropped,
         kTraceSlices);
  }
  const std::vector<std::string> packed = comm_.Gather(Totals().Pack());
  if (IsRoot()) ReportEnd(packed);
  const int status = HasTarget() && !reached_ ? 3 : 0;
  if (IsRoot() && status == 3) Log("target not reached: exit status 3");
  if (checkpoints_ == nullptr) return status;
  checkpoints_->Finish();
  if (checkpoints_->lost() == 0) return status;
  Log("{} of {} checkpoints could not be written", checkpoints_->lost(), epoch_);
  return status != 0 ? status : 1;
}

void Run::ReportEnd(const std::vector<std::string>& packed) {
  if (trace_file_) trace_file_->Close();
  const double minibatch_ms =
      NsToMs(train_ns_) / static_cast<double>(std::max<int64_t>(1, trained_));
  const Predicted* predicted = agreement_.plan.predicted ? &*agreement_.plan.predicted : nullptr;
  const MeasuredRun run{.minibatches = trained_,
                        .minibatch_ms = minibatch_ms,
                        .steady_ms = steady_.minibatch_ms(),
                        .timed = IsRehearsal()};
  std::vector<RankTotals> ranks;
  for (const std::string& text : packed) ranks.push_back(RankTotals::Unpack(text));
  const Json event = {
      {"event", "end"},
      {"reached", reached_},
      {"target_accuracy",
       config_.target_accuracy > 0 ? Json(config_.target_accuracy) : Json(nullptr)},
      {"target_perplexity",
       config_.target_perplexity > 0 ? Json(config_.target_perplexity) : Json(nullptr)},
      {"time_to_accuracy_s", reached_ ? Json(time_to_accuracy_s_) : Json(nullptr)},
      {"epochs", epoch_},
      {"accuracy", test_ ? Json(test_->accuracy) : Json(nullptr)},
      {"predicted_minibatch_ms",
       predicted != nullptr ? Json(predicted->minibatch_ms) : Json(nullptr)},
      {"minibatch_ms", minibatch_ms},
      {"steady_minibatch_ms", run.steady_ms > 0 ? Json(run.steady_ms) : Json(nullptr)},
      {"samples_per_s", static_cast<double>(spec_.batch_size) / minibatch_ms * 1e3},
      {"train_time_s", NsToS(train_ns_)},
      {"time_s", TimeS()},
      {"workers", Json::parse(WorkersJson(ranks, run, predicted))}};
  writer_->Write(event.dump());
  progress_.Clear();
  Log("done:\n{}", EndTable(ranks, run, predicted));
}

}  // namespace

int RunTraining(const TrainArguments& arguments, Transport& transport,
                const std::function<void(const std::exception&)>& on_failure) {
  return Run(arguments, transport).Execute(on_failure);
}

}  // namespace pd
