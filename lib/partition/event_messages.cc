// The simulator's messages and all-reduces.
#include <algorithm>

#include "partition/event_simulator.h"

namespace pd::simulation {
namespace {

// Of the runtime, pipeline/stage_setup.h, and what Open MPI sends before the receiver is ready.
constexpr int64_t kReceiveAhead = 2, kEagerBytes = 64 << 10;
// Of the runtime, pipeline/all_reduce.h: what a replica has under way for each other one.
constexpr int64_t kReduceWindowBytes = int64_t{32} * (60 << 10);

}  // namespace

int Simulator::Receiver(const SimulatedPipeline::Message& message, int64_t b) const {
  const Stage& to = stages_[message.to];
  return to.first + static_cast<int>(b % to.replicas);
}

int Simulator::Sender(const SimulatedPipeline::Message& message, int64_t b) const {
  const Stage& from = stages_[message.from];
  return from.first + static_cast<int>(b % from.replicas);
}

void Simulator::StartMessages(double now, int w, const std::vector<int32_t>& messages, int64_t b) {
  for (const int32_t m : messages) {
    Push(now + pipeline_.messages[m].ready_ms / workers_[w].speed, Event::Kind::kSend, w, m, b);
  }
}

bool Simulator::IsPosted(const SimulatedPipeline::Message& message, int64_t b,
                         const Worker& to) const {
  if (message.bytes <= kEagerBytes) return true;
  const Stage& stage = stages_[message.to];
  const int64_t slots = message.gradient ? kGradientBuffers : stage.in_flight + kReceiveAhead;
  return b / stage.replicas < slots + to.backwards;
}

void Simulator::Send(double now, int32_t m, int64_t b) {
  const auto& message = pipeline_.messages[m];
  Worker& to = workers_[Receiver(message, b)];
  if (IsPosted(message, b, to)) {
    StartTransfer(now, now, m, b);
  } else {
    to.pending.push_back({m, b, now});
  }
}

void Simulator::Release(double now, Worker& to) {
  if (to.pending.empty()) return;
  std::vector<Transfer> waiting;
  waiting.swap(to.pending);
  for (const Transfer& each : waiting) {
    if (IsPosted(pipeline_.messages[each.message], each.minibatch, to)) {
      StartTransfer(each.since, now, each.message, each.minibatch);
    } else {
      to.pending.push_back(each);
    }
  }
}

void Simulator::StartTransfer(double since, double now, int32_t m, int64_t b) {
  const auto& message = pipeline_.messages[m];
  const int from = Sender(message, b), to = Receiver(message, b);
  run_.workers[from].bytes_sent += message.bytes;
  run_.workers[to].bytes_received += message.bytes;
  size_t at = transfers_.size();
  if (unused_transfers_.empty()) {
    transfers_.emplace_back();
  } else {
    at = unused_transfers_.back();
    unused_transfers_.pop_back();
  }
  transfers_[at] = {m, b, since};
  network_.Send(now, workers_[from].id, workers_[to].id, message.bytes, static_cast<int64_t>(at));
}

void Simulator::Moved(double now, int64_t token) {
  if (token < 0) {
    EndHalf(now, static_cast<int>((-1 - token) / 2), static_cast<int>((-1 - token) % 2));
    return;
  }
  const Transfer transfer = transfers_[static_cast<size_t>(token)];
  unused_transfers_.push_back(static_cast<size_t>(token));
  const auto& message = pipeline_.messages[transfer.message];
  const int64_t b = transfer.minibatch;
  const int from = Sender(message, b), to = Receiver(message, b);
  if (options_.trace) {
    const ActionKind kind =
        message.gradient ? ActionKind::kSendGradients : ActionKind::kSendOutputs;
    run_.workers[from].messages.push_back({kind, b, ToNs(transfer.since), ToNs(now)});
  }
  Stage& source = stages_[message.from];
  Stage& target = stages_[message.to];
  const double arrived = now + network_.Latency(workers_[from].id, workers_[to].id);
  Arrive((message.gradient ? source.gradients_out : source.outputs_out)[b], now);
  Arrive((message.gradient ? target.gradients_in : target.inputs_in)[b], arrived);
}

void Simulator::Acknowledge(double now, int w, int64_t b) {
  for (const int32_t m : stages_[workers_[w].stage].acknowledged) {
    const auto& message = pipeline_.messages[m];
    const int sender = workers_[Sender(message, b)].id;
    Arrive(stages_[message.from].outputs_out[b], now + network_.Latency(workers_[w].id, sender));
  }
}

void Simulator::Reduce(double now, int w, int bucket, int64_t b) {
  Worker& worker = workers_[w];
  Stage& stage = stages_[worker.stage];
  const auto& buckets = pipeline_.stages[worker.stage].buckets;
  const int64_t round = b / stage.replicas;
  const auto at = static_cast<size_t>(round) * buckets.size() + static_cast<size_t>(bucket);
  Reduction& reduction = stage.reductions[at];
  if (bucket > 0) {
    const Reduction& before = stage.reductions[at - 1];
    const bool large = buckets[bucket - 1].bytes > kReduceWindowBytes * stage.replicas;
    const bool behind = !worker.held.empty() && worker.held.front().first < bucket;
    if (behind || (large && !before.done)) {
      worker.held.emplace_back(bucket, b);
      return;
    }
    if (large && before.time > now) {
      Push(before.time, Event::Kind::kReduce, w, bucket, b);
      return;
    }
  }
  const int64_t bytes = buckets[bucket].bytes;
  run_.workers[w].bytes_sent += (stage.replicas - 1) * bytes / stage.replicas;
  ++reduction.sending;
  Enqueue(now, w, kOut, {static_cast<int32_t>(at), bucket, 1});
  if (--reduction.missing > 0) return;
  // Now that all have started they receive what has not left yet; the rest they have.
  const int64_t parts = std::min(stage.replicas, options_.minibatches - round * stage.replicas);
  reduction.receiving = static_cast<int32_t>(stage.replicas);
  const double fraction =
      static_cast<double>(reduction.sending) / static_cast<double>(stage.replicas);
  for (int r = 0; r < stage.replicas; ++r) {
    const int64_t others = parts - (r < parts ? 1 : 0);
    run_.workers[stage.first + r].bytes_received += others * bytes / stage.replicas;
    Enqueue(now, stage.first + r, kIn, {static_cast<int32_t>(at), bucket, fraction});
  }
}

void Simulator::Enqueue(double now, int w, int direction, const Half& half) {
  auto& halves = workers_[w].halves[direction];
  halves.push_back(half);
  if (halves.size() == 1) StartHalf(now, w, direction);
}

void Simulator::StartHalf(double now, int w, int direction) {
  const Worker& worker = workers_[w];
  const Half& half = worker.halves[direction].front();
  const Stage& stage = stages_[worker.stage];
  network_.MoveHalf(now, stage.group, worker.replica,
                    static_cast<SimulatedNetwork::Direction>(direction),
                    pipeline_.stages[worker.stage].buckets[half.bucket].bytes, half.fraction,
                    -1 - 2 * int64_t{w} - direction);
}

void Simulator::EndHalf(double now, int w, int direction) {
  auto& halves = workers_[w].halves[direction];
  const Half half = halves.front();
  halves.pop_front();
  if (!halves.empty()) StartHalf(now, w, direction);
  const int s = workers_[w].stage;
  Stage& stage = stages_[s];
  Reduction& reduction = stage.reductions[half.reduction];
  --(direction == kOut ? reduction.sending : reduction.receiving);
  if (reduction.missing > 0 || reduction.sending > 0 || reduction.receiving > 0) return;
  const double arrived = now + stage.group.latency_ms;
  if (!reduction.results) {
    reduction.results = true;
    Push(arrived, Event::Kind::kResults, s, half.bucket, half.reduction);
    return;
  }
  reduction.time = arrived;
  reduction.done = true;
  for (int r = 0; r < stage.replicas; ++r) {
    Worker& worker = workers_[stage.first + r];
    for (const auto& [held, b] : worker.held) {
      Push(arrived, Event::Kind::kReduce, stage.first + r, held, b);
    }
    worker.held.clear();
    if (worker.waits_round != half.reduction) continue;
    worker.waits_round = -1;
    Wake(arrived, stage.first + r);
  }
}

void Simulator::Results(double now, int s, int bucket, int64_t at) {
  Stage& stage = stages_[s];
  Reduction& reduction = stage.reductions[static_cast<size_t>(at)];
  const int64_t share =
      (stage.replicas - 1) * pipeline_.stages[s].buckets[bucket].bytes / stage.replicas;
  reduction.sending = reduction.receiving = static_cast<int32_t>(stage.replicas);
  for (int r = 0; r < stage.replicas; ++r) {
    run_.workers[stage.first + r].bytes_sent += share;
    run_.workers[stage.first + r].bytes_received += share;
    for (const int direction : {kOut, kIn}) {
      Enqueue(now, stage.first + r, direction, {static_cast<int32_t>(at), bucket, 1});
    }
  }
}

}  // namespace pd::simulation
