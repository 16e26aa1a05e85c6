// One worker of the pipeline: Run() walks the static list of actions that lib/schedule made, and
// RunAction() does one. Everything that moves data is started as early as its memory is free and
// waited for as late as its data is needed; the communication thread does the rest, and on a device
// the copying queues. worker_messages.cc has the messages from and to other stages.
#include "pipeline/worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace pd {

Worker::Worker(const PipelineSpec& spec, Backend& backend, Comm& comm, int stage, int replica)
    : spec_(spec),
      backend_(backend),
      comm_(comm),
      stage_(stage),
      replica_(replica),
      replicas_(spec.shape.stages[stage].replicas),
      setup_(spec, backend, stage),
      versions_(backend, spec.shape.stages[stage].in_flight, setup_.weights().params_bytes()),
      clock_(backend, comm),
      staging_(backend, comm) {
  const WeightLayout& weights = setup_.weights();
  state_ = backend.Allocate(weights.state_bytes());
  // Takes the host's memory for a while: before the rest, so that the peak is training's.
  weights.Initialise(*spec.model, backend, spec.seed, versions_.start(), state_.data());
  gradients_ = backend.Allocate(weights.params_bytes());
  if (spec.momentum != 0) momentum_ = backend.Allocate(weights.params_bytes());
  if (setup_.recomputes()) spare_state_ = backend.Allocate(weights.state_bytes());
  scratch_ = backend.Allocate(setup_.scratch_bytes());
  for (int i = 0; i < setup_.arenas(); ++i) {
    arenas_.push_back({backend.Allocate(setup_.arena_bytes()), backend.MakeMark()});
  }
  throttled_.resize(spec.shape.stages.size());
  for (int s = 0; s < spec.shape.num_stages(); ++s) {
    throttled_[static_cast<size_t>(s)] = !spec.cut->Incoming(s, true).empty();
  }
  MakeSlots();
  MakeSums();
  MakeReports();
  if (!backend.on_device()) return;
  comm.UseIdleCore();
  comm.SetWatch([&backend] { backend.CheckDevice(); });
}

Worker::~Worker() { comm_.SetWatch(nullptr); }

void Worker::MakeSums() {
  const WeightLayout& weights = setup_.weights();
  std::byte* gradients = gradients_.data();
  std::byte* state = state_.data();
  if (replicas_ > 1 && backend_.on_device()) {
    host_gradients_ = backend_.AllocateStaging(weights.params_bytes());
    host_state_ = backend_.AllocateStaging(weights.state_bytes());
    gradients = host_gradients_.data();
    state = host_state_.data();
  }
  const std::vector<WeightBucket>& buckets = setup_.buckets();
  bucket_ending_at_.assign(spec_.cut->layers[stage_].size(), -1);
  for (size_t i = 0; i < buckets.size(); ++i) {
    const WeightBucket& bucket = buckets[i];
    bucket_ending_at_[static_cast<size_t>(bucket.first_layer)] = static_cast<int>(i);
    Sum& sum = sums_.emplace_back();
    sum.device = gradients_.data() + bucket.begin;
    sum.job.data = gradients + bucket.begin;
    sum.job.bytes = bucket.end - bucket.begin;
    sum.job.weights.assign(static_cast<size_t>(replicas_), 0);
  }
  if (replicas_ == 1) return;
  reducer_ = std::make_unique<AllReducer>(comm_, backend_, spec_.ranks[stage_], replica_,
                                          setup_.largest_sum_bytes(), spec_.machine_ranks);
  state_sum_.device = state_.data();
  state_sum_.job.data = state;
  state_sum_.job.bytes = weights.state_bytes();
  state_sum_.job.weights.assign(static_cast<size_t>(replicas_),
                                1.0F / static_cast<float>(replicas_));
}

void Worker::MakeReports() {
  const size_t bytes = setup_.loss_bytes();
  const size_t count = setup_.full().losses().size() * kMetricsAhead;
  if (count == 0) return;
  loss_memory_ = backend_.AllocateStaging(count * bytes);
  for (size_t i = 0; i < count; ++i) {
    LossReport& report = reports_.emplace_back();
    report.worker = this;
    report.values = reinterpret_cast<const float*>(loss_memory_.data() + i * bytes);
  }
}

int64_t Worker::SamplesIn(int64_t b) const {
  return std::min(spec_.batch_size, segment_.samples - b * spec_.batch_size);
}

int Worker::PeerOf(int stage, int64_t b) const {
  return spec_
      .ranks[static_cast<size_t>(stage)][static_cast<size_t>(ReplicaOf(spec_.shape, stage, b))];
}

// ---- The segment.

void Worker::Run(const Segment& segment) {
  PD_CHECK(segment.loader != nullptr || stage_ > 0, "the input stage needs a loader");
  segment_ = segment;
  ++segment_index_;
  minibatches_ = (segment.samples + spec_.batch_size - 1) / spec_.batch_size;
  local_minibatches_ = (minibatches_ - replica_ + replicas_ - 1) / replicas_;
  const std::vector<Action> actions =
      segment.training ? MakeActions(spec_.schedule, spec_.shape, stage_, replica_, minibatches_)
                       : MakeEvaluationActions(spec_.shape, stage_, replica_, minibatches_);
  clock_.BeginSegment();
  for (int64_t k = 0; k < setup_.input_slots(); ++k) PostInputs(k);
  for (int64_t k = 0; k < kGradientBuffers && segment.training; ++k) PostGradients(k);
  for (const Action& action : actions) {
    RunAction(action);
    if (segment_.between_actions) segment_.between_actions();
  }
  WaitForSends();
  if (segment.training) {
    versions_.EndSegment((minibatches_ + replicas_ - 1) / replicas_);
    AverageState();
  }
  clock_.EndSegment();
}

void Worker::RunAction(const Action& action) {
  comm_.Check();
  // The input stage's inputs come from the loader, for which it may have to wait.
  const bool loads = stage_ == 0 && action.kind == ActionKind::kReceiveInputs;
  clock_.Begin(action.kind, RunNumber(action.minibatch), loads);
  switch (action.kind) {
    case ActionKind::kReceiveInputs:
      ReceiveInputs(action.minibatch);
      break;
    case ActionKind::kForward:
      Forward(action.minibatch, action.version);
      break;
    case ActionKind::kReceiveGradients:
      ReceiveGradients(action.minibatch);
      break;
    case ActionKind::kBackward:
      Backward(action.minibatch, action.version);
      break;
    case ActionKind::kUpdate:
      Update(action.minibatch, action.version);
      break;
    case ActionKind::kSendOutputs:
    case ActionKind::kSendGradients:
      return;  // started inside the forward or backward before, as soon as each tensor was there
  }
  clock_.End();
}

StageMemory Worker::MemoryOf(int64_t b, int64_t version) {
  current_ = b;
  const MessageSlot& inputs = InputsOf(b);
  return {.arena = At(arenas_, b).memory.data(),
          .scratch = scratch_.data(),
          .inputs = {inputs.payloads.data(), inputs.payloads.size()},
          .outputs = OutputsOf(b).payloads,
          .gradients_received = GradientsIn(b).payloads,
          .gradients_sent = GradientsOut(b).payloads,
          .weights = versions_.At(version),
          .weight_gradients = gradients_.data(),
          .state = state_.data(),
          .minibatch = static_cast<uint64_t>(RunNumber(b)),
          .training = segment_.training};
}

// ---- Forward.

void Worker::Forward(int64_t b, int64_t version) {
  AwaitOutputs(b);
  StageProgram& program = setup_.program(SamplesIn(b));
  current_program_ = &program;
  backend_.Wait(Queue::kCompute, *At(arenas_, b).losses_reported, "losses reported");
  clock_.Computes();
  program.Forward(MemoryOf(b, version), *this);
  ReportLosses(program, b);
  if (segment_.training) return;
  staging_.Read(InputsOf(b));
  PostInputs(Local(b) + setup_.input_slots());
}

void Worker::ReportLosses(const StageProgram& program, int64_t b) {
  if (program.losses().empty()) return;
  Arena& arena = At(arenas_, b);
  staging_.FollowCompute("losses made");
  for (const StageProgram::Loss& loss : program.losses()) {
    LossReport& report = reports_[static_cast<size_t>(reported_++) % reports_.size()];
    const WaitReason reason{"report the loss", RunNumber(b), spec_.metrics_rank};
    comm_.Wait(report.seen, reason);
    comm_.Wait(report.sent, reason);
    report.seen.Reset();
    report.metrics = {.sequence = SequenceOf(segment_index_, b), .samples = SamplesIn(b)};
    report.layer = loss.layer;
    report.number = RunNumber(b);
    report.training = segment_.training;
    const size_t bytes = static_cast<size_t>(SamplesIn(b)) * kLossColumns * sizeof(float);
    staging_.Download(const_cast<float*>(report.values), arena.memory.data() + loss.values, bytes);
    comm_.Run(report, staging_.Downloaded());
  }
  staging_.MarkDownloads(*arena.losses_reported, "losses reported");
}

void Worker::LossReport::Done(size_t /*bytes*/) {
  metrics.time_ns = NowNs();
  const float* row = values;
  for (int64_t i = 0; i < metrics.samples; ++i, row += kLossColumns) {
    metrics.loss_sum += static_cast<double>(row[kLossSum]);
    metrics.counted += static_cast<double>(row[kLossCounted]);
    metrics.right += static_cast<double>(row[kLossRight]);
    metrics.top5 += static_cast<double>(row[kLossTop5]);
  }
  const PipelineSpec& spec = worker->spec_;
  const bool main = layer == spec.model->main_loss();
  if (!std::isfinite(metrics.loss_sum)) {
    Throw(ErrorCode::kInternal, "the {}loss {}is not finite at minibatch {} (stage {}, replica {})",
          training ? "" : "evaluation's ",
          main ? "" : fmt::format("\"{}\" ", spec.model->layers()[layer].layer->name()), number + 1,
          worker->stage_, worker->replica_);
  }
  if (main) {
    sent.Reset();
    worker->comm_.StartSend(spec.metrics_rank, kTagMetrics, &metrics, sizeof metrics, sent);
  }
  seen.Done(0);
}

// ---- Backward.

void Worker::Backward(int64_t b, int64_t version) {
  const int64_t k = Local(b);
  MessageSlot& sent = GradientsOut(b);
  for (size_t i = 0; i < sent.payloads.size(); ++i) {
    const WaitReason reason{"send earlier gradients,", RunNumber(b),
                            PeerOf(MessageAt(setup_.gradients_out()[i]).to, b)};
    comm_.Wait(sent.tickets[i], reason);
    comm_.Wait(sent.header_tickets[i], reason);
  }
  if (setup_.recomputes()) AwaitOutputs(b);
  StageProgram& program = setup_.program(SamplesIn(b));
  current_program_ = &program;
  SetRoundWeights(b / replicas_ * replicas_);
  clock_.Computes();
  if (setup_.recomputes()) ForwardAgain(b, version);
  program.Backward(MemoryOf(b, version), *this);
  staging_.Read(InputsOf(b));
  staging_.Read(GradientsIn(b));
  PostInputs(k + setup_.input_slots());
  PostGradients(k + kGradientBuffers);
}

// Makes the arena of `b` anew, as its forward pass made it: from the same inputs, weights and
// random numbers. Nothing is sent, and the running statistics, which have seen the minibatch, stay.
void Worker::ForwardAgain(int64_t b, int64_t version) {
  backend_.Wait(Queue::kCompute, *At(arenas_, b).losses_reported, "losses reported");
  StageObserver nobody;
  StageMemory memory = MemoryOf(b, version);
  memory.state = spare_state_.data();
  current_program_->Forward(memory, nobody);
}

void Worker::SetRoundWeights(int64_t first) {
  int64_t samples = 0;
  for (int64_t b = first; b < std::min(first + replicas_, minibatches_); ++b)
    samples += SamplesIn(b);
  for (int64_t r = 0; r < replicas_; ++r) {
    const float weight = RoundWeight(first + r < minibatches_ ? SamplesIn(first + r) : 0, samples);
    for (Sum& sum : sums_) sum.job.weights[static_cast<size_t>(r)] = weight;
  }
}

// ---- Sums over replicas, and the update.

void Worker::StartSum(Sum& sum) {
  staging_.Download(sum.job.data, sum.device, sum.job.bytes);
  reducer_->Start(sum.job, staging_.Downloaded());
}

// The device's range was downloaded, so no kernel needs it any more; the host's is overwritten by
// the next download, which follows a kernel that follows this upload.
void Worker::FinishSum(Sum& sum, const WaitReason& reason, const char* purpose) {
  if (!sum.job.done.done()) clock_.Waits();
  comm_.Wait(sum.job.done, reason);
  staging_.Upload(sum.device, sum.job.data, sum.job.bytes, purpose);
}

void Worker::WeightGradientReady(int i) {
  const int bucket = bucket_ending_at_[static_cast<size_t>(i)];
  if (bucket >= 0 && replicas_ > 1) {
    staging_.FollowCompute("weight gradients made");
    StartSum(sums_[static_cast<size_t>(bucket)]);
  }
}

void Worker::Update(int64_t first, int64_t version) {
  const bool took_part = first + replica_ < minibatches_;
  if (!took_part) {
    // The round has no minibatch for this replica: it only receives the others' sum, once it has
    // applied the one before.
    SetRoundWeights(first);
    staging_.FollowCompute("last sums applied");
    const Opening free = staging_.Downloaded();
    for (Sum& sum : sums_) reducer_->Start(sum.job, free);
  }
  const double lr = segment_.lr(first);
  const std::byte* from = versions_.At(version - 1);
  std::byte* to = versions_.At(version);
  for (size_t i = 0; i < sums_.size(); ++i) {
    const WeightBucket& bucket = setup_.buckets()[i];
    if (replicas_ > 1) {
      FinishSum(sums_[i], {"all-reduce the round", RunNumber(first), -1}, "sums uploaded");
    }
    clock_.Computes();
    backend_.Sgd({.w = from + bucket.begin,
                  .g = gradients_.data() + bucket.begin,
                  .m = momentum_.data() == nullptr ? nullptr : momentum_.data() + bucket.begin,
                  .w_out = to + bucket.begin,
                  .count = (bucket.end - bucket.begin) / SizeOf(backend_.dtype()),
                  .lr = lr,
                  .momentum = spec_.momentum,
                  .weight_decay = spec_.weight_decay});
  }
}

// ---- The drain, and weights in and out.

void Worker::AverageState() {
  if (replicas_ == 1 || state_sum_.job.bytes == 0) return;
  // The last round is summed, so the forward passes before it are done.
  StartSum(state_sum_);
  FinishSum(state_sum_, {.action = "average running statistics"}, "statistics uploaded");
}

namespace {

const WeightLayout::Entry& EntryOf(const WeightLayout& weights, Worker::Kind kind, size_t entry) {
  return kind == Worker::Kind::kState ? weights.state().at(entry) : weights.params().at(entry);
}

}  // namespace

void Worker::Export(Kind kind, size_t entry, void* dense) const {
  const WeightLayout::Entry& e = EntryOf(setup_.weights(), kind, entry);
  const std::byte* block = kind == Kind::kParameters ? versions_.start()
                           : kind == Kind::kMomentum ? momentum_.data()
                                                     : state_.data();
  backend_.ToHost(e.layout, block + e.offset, dense);
}

void Worker::Import(Kind kind, size_t entry, const void* dense) {
  const WeightLayout::Entry& e = EntryOf(setup_.weights(), kind, entry);
  std::byte* block = kind == Kind::kParameters ? versions_.start()
                     : kind == Kind::kMomentum ? momentum_.data()
                                               : state_.data();
  backend_.FromHost(e.layout, dense, block + e.offset);
}

}  // namespace pd
