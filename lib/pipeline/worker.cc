// One worker of the pipeline: Run() walks the static list of actions that lib/schedule made, and
// RunAction() does one. Everything that moves data is started as early as its memory is free and
// waited for as late as its data is needed; the communication thread does the rest.
#include "pipeline/worker.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace pd {
namespace {

constexpr int64_t kMetricsAhead = 64;

}  // namespace

Worker::Worker(const PipelineSpec& spec, Backend& backend, Comm& comm, int stage, int replica)
    : spec_(spec),
      backend_(backend),
      comm_(comm),
      stage_(stage),
      replica_(replica),
      replicas_(spec.shape.stages[stage].replicas),
      in_flight_(spec.shape.stages[stage].in_flight),
      setup_(spec, backend, stage),
      versions_(backend, in_flight_, setup_.weights().params_bytes()),
      metrics_(kMetricsAhead),
      metrics_tickets_(std::make_unique<Ticket[]>(kMetricsAhead)) {
  const WeightLayout& weights = setup_.weights();
  gradients_ = backend.Allocate(weights.params_bytes());
  if (spec.momentum != 0) momentum_ = backend.Allocate(weights.params_bytes());
  state_ = backend.Allocate(weights.state_bytes());
  scratch_ = backend.Allocate(setup_.scratch_bytes());
  weights.Initialise(*spec.model, backend, spec.seed, versions_.start(), state_.data());
  for (int i = 0; i < in_flight_; ++i) arenas_.push_back(backend.Allocate(setup_.arena_bytes()));
  output_tickets_ = std::make_unique<Ticket[]>(arenas_.size() * setup_.outputs().size());
  output_acknowledgements_ = std::make_unique<Ticket[]>(arenas_.size() * setup_.outputs().size());

  for (const TensorId t : setup_.full().inputs()) {
    int tag = -1;
    for (const int m : spec.cut->Incoming(stage, false)) {
      if (spec.cut->messages[m].tensor == t) tag = m;
    }
    input_tags_.push_back(tag);
  }
  for (int i = 0; i < setup_.input_slots(); ++i)
    inputs_.push_back(MakeSlot(setup_.full().inputs()));
  throttled_.resize(spec.shape.stages.size());
  for (int s = 0; s < spec.shape.num_stages(); ++s) {
    throttled_[static_cast<size_t>(s)] = !spec.cut->Incoming(s, true).empty();
  }
  const auto tensors_of = [&](const std::vector<int>& messages) {
    std::vector<TensorId> tensors;
    tensors.reserve(messages.size());
    for (const int m : messages) tensors.push_back(spec.cut->messages[m].tensor);
    return tensors;
  };
  for (int i = 0; i < kGradientBuffers; ++i) {
    gradients_in_.push_back(MakeSlot(tensors_of(setup_.gradients_in())));
    gradients_out_.push_back(MakeSlot(tensors_of(setup_.gradients_out())));
  }
  MakeBuckets();
  if (replicas_ > 1) {
    reducer_ = std::make_unique<AllReducer>(comm, backend, spec.ranks[stage], replica,
                                            setup_.largest_sum_bytes());
    state_job_.data = state_.data();
    state_job_.bytes = weights.state_bytes();
    state_job_.weights.assign(static_cast<size_t>(replicas_), 1.0F / static_cast<float>(replicas_));
  }
}

Worker::~Worker() = default;

Worker::Slot Worker::MakeSlot(const std::vector<TensorId>& tensors) {
  Slot slot;
  size_t bytes = 0;
  for (const TensorId t : tensors) bytes += setup_.MessageBytes(t);
  slot.memory = backend_.Allocate(bytes);
  std::byte* at = slot.memory.data();
  for (const TensorId t : tensors) {
    slot.payloads.push_back(at + StageProgram::kHeaderBytes);
    at += setup_.MessageBytes(t);
  }
  slot.tickets = std::make_unique<Ticket[]>(tensors.size());
  slot.acknowledgements = std::make_unique<Ticket[]>(tensors.size());
  return slot;
}

void Worker::MakeBuckets() {
  const std::vector<WeightBucket>& buckets = setup_.buckets();
  bucket_ending_at_.assign(spec_.cut->layers[stage_].size(), -1);
  for (size_t i = 0; i < buckets.size(); ++i) {
    const WeightBucket& bucket = buckets[i];
    bucket_ending_at_[static_cast<size_t>(bucket.first_layer)] = static_cast<int>(i);
    ReduceJob& job = jobs_.emplace_back();
    job.data = gradients_.data() + bucket.begin;
    job.bytes = bucket.end - bucket.begin;
    job.weights.assign(static_cast<size_t>(replicas_), 0);
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
}

void Worker::RunAction(const Action& action) {
  const int64_t begin = NowNs();
  const int64_t waited = comm_.waited_ns();
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
  const int64_t end = NowNs();
  // The input stage's inputs come from the loader, for which it may have to wait.
  const bool loads = stage_ == 0 && action.kind == ActionKind::kReceiveInputs;
  const int64_t idle = loads ? end - begin : comm_.waited_ns() - waited;
  idle_ns_ += idle;
  compute_ns_ += end - begin - idle;
  if (trace_ != nullptr) trace_->Add({action.kind, RunNumber(action.minibatch), begin, end});
}

StageMemory Worker::MemoryOf(int64_t b, int64_t version) {
  const int64_t k = Local(b);
  const Slot& inputs = inputs_[static_cast<size_t>(k) % inputs_.size()];
  current_ = b;
  current_arena_ = arenas_[static_cast<size_t>(k) % arenas_.size()].data();
  return {.arena = current_arena_,
          .scratch = scratch_.data(),
          .inputs = {inputs.payloads.data(), inputs.payloads.size()},
          .gradients_received = gradients_in_[static_cast<size_t>(k) % kGradientBuffers].payloads,
          .gradients_sent = gradients_out_[static_cast<size_t>(k) % kGradientBuffers].payloads,
          .weights = versions_.At(version),
          .weight_gradients = gradients_.data(),
          .state = state_.data(),
          .minibatch = static_cast<uint64_t>(RunNumber(b)),
          .training = segment_.training};
}

// ---- Forward.

void Worker::PostInputs(int64_t k) {
  if (k >= local_minibatches_) return;
  const int64_t b = k * replicas_ + replica_;
  Slot& slot = inputs_[static_cast<size_t>(k) % inputs_.size()];
  for (size_t i = 0; i < input_tags_.size(); ++i) {
    if (input_tags_[i] < 0) continue;
    const BorderMessage& message = spec_.cut->messages[static_cast<size_t>(input_tags_[i])];
    comm_.Receive(PeerOf(message.from, b), kTagBorder + message.tag,
                  slot.payloads[i] - StageProgram::kHeaderBytes,
                  setup_.MessageBytes(message.tensor), slot.tickets[i]);
  }
}

void Worker::ReceiveInputs(int64_t b) {
  Slot& slot = inputs_[static_cast<size_t>(Local(b)) % inputs_.size()];
  if (stage_ == 0) {
    const Minibatch& minibatch = segment_.loader->Next();
    PD_CHECK(minibatch.samples == SamplesIn(b),
             "the loader gave {} samples for minibatch {}, not {}", minibatch.samples, b,
             SamplesIn(b));
    for (size_t i = 0; i < slot.payloads.size(); ++i) {
      const TensorId t = setup_.full().inputs()[i];
      std::memcpy(slot.payloads[i], minibatch.fields[static_cast<size_t>(t)],
                  spec_.model->spec(t).Bytes(minibatch.samples));
    }
    return;
  }
  for (size_t i = 0; i < slot.payloads.size(); ++i) {
    const BorderMessage& message = spec_.cut->messages[static_cast<size_t>(input_tags_[i])];
    comm_.Wait(slot.tickets[i], {"receive inputs", RunNumber(b), PeerOf(message.from, b)});
    CheckMessage(slot.payloads[i], slot.tickets[i], message, b);
    if (!Acknowledges(message)) continue;
    const int peer = PeerOf(message.from, b);
    comm_.Wait(slot.acknowledgements[i], {"acknowledge inputs", RunNumber(b), peer});
    comm_.Send(peer, AcknowledgementTag(message), nullptr, 0, slot.acknowledgements[i]);
  }
}

// A stage that no gradient comes back to, and every stage in an evaluation, would run ahead of its
// readers, and its messages would pile up in the transport without limit. So their readers
// acknowledge each input, and the stage has no more unacknowledged minibatches than minibatches in
// flight.
bool Worker::Acknowledges(const BorderMessage& message) const {
  return !segment_.training || !throttled_[static_cast<size_t>(message.from)];
}

int Worker::AcknowledgementTag(const BorderMessage& message) const {
  return kTagBorder + static_cast<int>(spec_.cut->messages.size()) + message.tag;
}

void Worker::CheckMessage(const std::byte* payload, const Ticket& ticket,
                          const BorderMessage& message, int64_t b) const {
  MessageHeader header;
  std::memcpy(&header, payload - StageProgram::kHeaderBytes, sizeof header);
  const MessageHeader expected{SequenceOf(segment_index_, b), SamplesIn(b), message.tensor};
  const size_t bytes =
      StageProgram::kHeaderBytes + spec_.model->spec(message.tensor).Bytes(expected.samples);
  PD_CHECK(
      header == expected && ticket.bytes() == bytes,
      "a message of another minibatch or size: expected {:x} of tensor {}, {} samples, {} bytes, "
      "found {:x} of tensor {}, {} samples, {} bytes",
      expected.sequence, expected.tensor, expected.samples, bytes, header.sequence, header.tensor,
      header.samples, ticket.bytes());
}

void Worker::Forward(int64_t b, int64_t version) {
  const int64_t k = Local(b);
  // The arena's messages of an earlier minibatch have left long ago, unless nothing comes back for
  // them.
  const size_t first = static_cast<size_t>(k) % arenas_.size() * setup_.outputs().size();
  for (size_t i = 0; i < setup_.outputs().size(); ++i) {
    const int peer = PeerOf(spec_.cut->messages[static_cast<size_t>(setup_.outputs()[i])].to, b);
    comm_.Wait(output_tickets_[first + i], {"send earlier outputs,", RunNumber(b), peer});
    comm_.Wait(output_acknowledgements_[first + i],
               {"receive the acknowledgement of outputs before those", RunNumber(b), peer});
  }
  StageProgram& program = setup_.program(SamplesIn(b));
  current_program_ = &program;
  const StageMemory memory = MemoryOf(b, version);
  program.Forward(memory, *this);
  if (!program.losses().empty()) ReportLoss(program, b);
  if (!segment_.training) PostInputs(k + setup_.input_slots());
}

void Worker::OutputReady(int output) {
  const StageProgram::Output& what = current_program_->outputs()[static_cast<size_t>(output)];
  std::byte* message = current_arena_ + what.offset - StageProgram::kHeaderBytes;
  const MessageHeader header{SequenceOf(segment_index_, current_), SamplesIn(current_),
                             what.tensor};
  std::memcpy(message, &header, sizeof header);
  const size_t first =
      static_cast<size_t>(Local(current_)) % arenas_.size() * setup_.outputs().size();
  Ticket* tickets = &output_tickets_[first];
  for (size_t i = 0; i < setup_.outputs().size(); ++i) {
    const BorderMessage& border = spec_.cut->messages[static_cast<size_t>(setup_.outputs()[i])];
    if (border.tensor != what.tensor) continue;
    tickets[i].SetLabel(ActionKind::kSendOutputs, RunNumber(current_));
    comm_.Send(PeerOf(border.to, current_), kTagBorder + border.tag, message,
               StageProgram::kHeaderBytes + what.bytes, tickets[i]);
    if (!Acknowledges(border)) continue;
    comm_.Receive(PeerOf(border.to, current_), AcknowledgementTag(border), nullptr, 0,
                  output_acknowledgements_[first + i]);
  }
}

void Worker::ReportLoss(const StageProgram& program, int64_t b) {
  const StageProgram::Loss& loss = program.losses().back();
  const auto* values = reinterpret_cast<const float*>(current_arena_ + loss.values);
  const auto* correct = reinterpret_cast<const float*>(current_arena_ + loss.correct);
  const auto slot = static_cast<size_t>(reports_++ % kMetricsAhead);
  MinibatchMetrics& metrics = metrics_[slot];
  comm_.Wait(metrics_tickets_[slot], {"report the loss", RunNumber(b), spec_.metrics_rank});
  metrics = {.sequence = SequenceOf(segment_index_, b), .samples = SamplesIn(b)};
  for (int64_t i = 0; i < metrics.samples; ++i) {
    metrics.loss_sum += static_cast<double>(values[i]);
    metrics.correct += static_cast<double>(correct[i]);
  }
  if (!std::isfinite(metrics.loss_sum)) {
    Throw(ErrorCode::kInternal, "the {}loss is not finite at minibatch {} (stage {}, replica {})",
          segment_.training ? "" : "evaluation's ", RunNumber(b) + 1, stage_, replica_);
  }
  comm_.Send(spec_.metrics_rank, kTagMetrics, &metrics, sizeof metrics, metrics_tickets_[slot]);
}

// ---- Backward.

void Worker::PostGradients(int64_t k) {
  if (k >= local_minibatches_) return;
  const int64_t b = k * replicas_ + replica_;
  Slot& slot = gradients_in_[static_cast<size_t>(k) % kGradientBuffers];
  for (size_t i = 0; i < slot.payloads.size(); ++i) {
    const BorderMessage& message =
        spec_.cut->messages[static_cast<size_t>(setup_.gradients_in()[i])];
    comm_.Receive(PeerOf(message.from, b), kTagBorder + message.tag,
                  slot.payloads[i] - StageProgram::kHeaderBytes,
                  setup_.MessageBytes(message.tensor), slot.tickets[i]);
  }
}

void Worker::ReceiveGradients(int64_t b) {
  Slot& slot = gradients_in_[static_cast<size_t>(Local(b)) % kGradientBuffers];
  for (size_t i = 0; i < slot.payloads.size(); ++i) {
    const BorderMessage& message =
        spec_.cut->messages[static_cast<size_t>(setup_.gradients_in()[i])];
    comm_.Wait(slot.tickets[i], {"receive gradients", RunNumber(b), PeerOf(message.from, b)});
    CheckMessage(slot.payloads[i], slot.tickets[i], message, b);
  }
}

void Worker::Backward(int64_t b, int64_t version) {
  const int64_t k = Local(b);
  Slot& sent = gradients_out_[static_cast<size_t>(k) % kGradientBuffers];
  for (size_t i = 0; i < sent.payloads.size(); ++i) {
    const BorderMessage& message =
        spec_.cut->messages[static_cast<size_t>(setup_.gradients_out()[i])];
    comm_.Wait(sent.tickets[i], {"send earlier gradients,", RunNumber(b), PeerOf(message.to, b)});
  }
  StageProgram& program = setup_.program(SamplesIn(b));
  current_program_ = &program;
  SetRoundWeights(b / replicas_ * replicas_);
  program.Backward(MemoryOf(b, version), *this);
  PostInputs(k + setup_.input_slots());
  PostGradients(k + kGradientBuffers);
}

void Worker::SetRoundWeights(int64_t first) {
  int64_t samples = 0;
  for (int64_t b = first; b < std::min(first + replicas_, minibatches_); ++b)
    samples += SamplesIn(b);
  for (int64_t r = 0; r < replicas_; ++r) {
    const float weight = RoundWeight(first + r < minibatches_ ? SamplesIn(first + r) : 0, samples);
    for (ReduceJob& job : jobs_) job.weights[static_cast<size_t>(r)] = weight;
  }
}

void Worker::GradientReady(int index) {
  const BorderMessage& message =
      spec_.cut->messages[static_cast<size_t>(setup_.gradients_out()[static_cast<size_t>(index)])];
  Slot& slot = gradients_out_[static_cast<size_t>(Local(current_)) % kGradientBuffers];
  std::byte* start = slot.payloads[static_cast<size_t>(index)] - StageProgram::kHeaderBytes;
  const MessageHeader header{SequenceOf(segment_index_, current_), SamplesIn(current_),
                             message.tensor};
  std::memcpy(start, &header, sizeof header);
  const size_t bytes = spec_.model->spec(message.tensor).Bytes(SamplesIn(current_));
  Ticket& ticket = slot.tickets[static_cast<size_t>(index)];
  ticket.SetLabel(ActionKind::kSendGradients, RunNumber(current_));
  comm_.Send(PeerOf(message.to, current_), kTagBorder + message.tag, start,
             StageProgram::kHeaderBytes + bytes, ticket);
}

void Worker::WeightGradientReady(int i) {
  const int bucket = bucket_ending_at_[static_cast<size_t>(i)];
  if (bucket >= 0 && replicas_ > 1) reducer_->Start(jobs_[static_cast<size_t>(bucket)]);
}

void Worker::Update(int64_t first, int64_t version) {
  const bool took_part = first + replica_ < minibatches_;
  if (!took_part) {
    // The round has no minibatch for this replica: it only receives the others' sum.
    SetRoundWeights(first);
    for (ReduceJob& job : jobs_) reducer_->Start(job);
  }
  const double lr = segment_.lr(first);
  const std::byte* from = versions_.At(version - 1);
  std::byte* to = versions_.At(version);
  for (size_t i = 0; i < jobs_.size(); ++i) {
    const WeightBucket& bucket = setup_.buckets()[i];
    if (replicas_ > 1) comm_.Wait(jobs_[i].done, {"all-reduce the round", RunNumber(first), -1});
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

void Worker::WaitForSends() {
  for (size_t i = 0; i < arenas_.size() * setup_.outputs().size(); ++i) {
    comm_.Wait(output_tickets_[i], {.action = "finish sending outputs"});
    comm_.Wait(output_acknowledgements_[i], {.action = "receive acknowledgements"});
  }
  for (Slot& slot : gradients_out_) {
    for (size_t i = 0; i < slot.payloads.size(); ++i) {
      comm_.Wait(slot.tickets[i], {.action = "finish sending gradients"});
    }
  }
}

void Worker::AverageState() {
  if (replicas_ == 1 || state_job_.bytes == 0) return;
  reducer_->Start(state_job_);
  comm_.Wait(state_job_.done, {.action = "average running statistics"});
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
