// A discrete-event simulation of the action lists that workers run. Events are taken in time order
// (ties: the network's last, then in the order in which they were made). Whatever workers wait for
// is a Gate, which wakes them. Differs from the runtime: the halves of an all-reduce of a bucket
// move as a whole, not in chunks, and end for all replicas at once.
#include "partition/event_simulator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace pd::simulation {
namespace {

constexpr double kAgree = 1e-9;  // Of two stretches.

}  // namespace

Simulator::Simulator(const std::string& schedule, const PipelineShape& shape,
                     const SimulatedPipeline& pipeline, const Options& options)
    : pipeline_(pipeline),
      options_(options),
      network_(pipeline.levels, pipeline.WorkersUsed(shape)),
      left_(static_cast<size_t>(options.minibatches), shape.num_stages()),
      done_(static_cast<size_t>(options.minibatches), 0.0) {
  PD_CHECK(options.minibatches < (int64_t{1} << 28), "{} minibatches", options.minibatches);
  stages_.resize(pipeline.stages.size());
  for (int s = 0; s < shape.num_stages(); ++s) {
    stages_[s].first = static_cast<int>(workers_.size());
    stages_[s].replicas = shape.stages[s].replicas;
    stages_[s].in_flight = shape.stages[s].in_flight;
    for (int r = 0; r < shape.stages[s].replicas; ++r) AddWorker(schedule, shape, s, r);
  }
  for (const auto& message : pipeline.messages) {
    if (message.gradient) stages_[message.to].throttled = true;
  }
  for (size_t m = 0; m < pipeline.messages.size(); ++m) {
    const auto& message = pipeline.messages[m];
    Stage& from = stages_[message.from];
    (message.gradient ? from.gradients : from.outputs).push_back(static_cast<int32_t>(m));
    if (!message.gradient && !from.throttled) {
      stages_[message.to].acknowledged.push_back(static_cast<int32_t>(m));
    }
  }
  for (size_t s = 0; s < stages_.size(); ++s) MakeGates(static_cast<int>(s));
}

void Simulator::Run() {
  for (size_t w = 0; w < workers_.size(); ++w) Wake(0, static_cast<int>(w));
  while (!steady_) {
    ++work_;
    const SimulatedNetwork::Completion moved = network_.Next();
    if (events_.empty() || moved.time < events_.top().time) {
      if (moved.time == std::numeric_limits<double>::infinity()) break;
      network_.Pop();
      Moved(moved.time, moved.token);
      continue;
    }
    const Event event = events_.top();
    events_.pop();
    switch (event.kind) {
      case Event::Kind::kStep:
        Step(event.time, event.who);
        break;
      case Event::Kind::kSend:
        Send(event.time, event.what, event.minibatch);
        break;
      case Event::Kind::kReduce:
        Reduce(event.time, event.who, event.what, event.minibatch);
        break;
      case Event::Kind::kResults:
        Results(event.time, event.who, event.what, event.minibatch);
        break;
    }
  }
  for (const Worker& worker : workers_) {
    PD_CHECK(steady_ || worker.next == worker.actions.size(), "stage {} replica {} waits for ever",
             worker.stage, worker.replica);
  }
}

void Simulator::AddWorker(const std::string& schedule, const PipelineShape& shape, int s, int r) {
  Worker worker;
  worker.id = pipeline_.stages[s].worker(r);
  worker.stage = s;
  worker.replica = r;
  worker.speed = pipeline_.Speed(worker.id);
  const std::vector<Action> actions = MakeActions(schedule, shape, s, r, options_.minibatches);
  worker.actions.reserve(actions.size());
  for (const Action& action : actions) {
    worker.actions.push_back(static_cast<uint32_t>(action.minibatch << 3) |
                             static_cast<uint32_t>(action.kind));
  }
  work_ += static_cast<int64_t>(actions.size());
  workers_.push_back(std::move(worker));
  run_.workers.push_back(
      {.id = workers_.back().id, .stage = s, .replica = r, .compute = {}, .messages = {}});
}

void Simulator::MakeGates(int s) {
  Stage& stage = stages_[s];
  int32_t inputs = 0, gradients = 0, acknowledged = 0;
  for (const auto& message : pipeline_.messages) {
    if (message.to == s) ++(message.gradient ? gradients : inputs);
  }
  const auto outputs = static_cast<int32_t>(stage.outputs.size());
  if (!stage.throttled) acknowledged = outputs;
  const auto make = [&](std::vector<Gate>& gates, int32_t missing) {
    if (missing > 0) gates.assign(static_cast<size_t>(options_.minibatches), {0, missing, -1});
  };
  make(stage.inputs_in, inputs);
  make(stage.gradients_in, gradients);
  make(stage.outputs_out, outputs + acknowledged);
  make(stage.gradients_out, static_cast<int32_t>(stage.gradients.size()));
  const int64_t r = stage.replicas;
  if (r == 1) return;
  stage.group = network_.MakeGroup(pipeline_.stages[s], static_cast<int>(r));
  for (int64_t b = 0; b < options_.minibatches; b += r) {
    Reduction reduction;
    reduction.missing = static_cast<int32_t>(std::min(r, options_.minibatches - b));
    stage.reductions.insert(stage.reductions.end(), pipeline_.stages[s].buckets.size(), reduction);
  }
}

void Simulator::Push(double time, Event::Kind kind, int who, int what, int64_t minibatch) {
  events_.push({time, order_++, kind, who, what, minibatch});
}

bool Simulator::Passes(std::vector<Gate>& gates, int64_t b, double now, int worker) {
  if (gates.empty() || b < 0) return true;
  Gate& gate = gates[static_cast<size_t>(b)];
  if (gate.missing > 0) {
    gate.waiting = worker;
    return false;
  }
  if (gate.time <= now) return true;
  Wake(gate.time, worker);
  return false;
}

void Simulator::Arrive(Gate& gate, double time) {
  gate.time = std::max(gate.time, time);
  if (--gate.missing == 0 && gate.waiting >= 0) Wake(gate.time, gate.waiting);
}

void Simulator::Step(double now, int w) {
  Worker& worker = workers_[w];
  while (worker.next < worker.actions.size()) {
    const uint32_t packed = worker.actions[worker.next];
    const auto kind = static_cast<ActionKind>(packed & 7);
    const auto b = static_cast<int64_t>(packed >> 3);
    ++work_;
    if (!worker.started) {
      const double takes =
          kind == ActionKind::kUpdate ? StartUpdate(now, w, b) : Start(now, w, kind, b);
      if (takes < 0) return;
      worker.started = true;
      run_.workers[w].compute_ms += takes;
      if (takes > 0) {
        Wake(now + takes, w);
        return;
      }
    }
    worker.started = false;
    if (kind == ActionKind::kUpdate &&
        ++worker.bucket < pipeline_.stages[worker.stage].buckets.size()) {
      continue;
    }
    Finish(now, w, kind, b);
  }
}

double Simulator::Start(double now, int w, ActionKind kind, int64_t b) {
  Worker& worker = workers_[w];
  Stage& stage = stages_[worker.stage];
  const auto& costs = pipeline_.stages[worker.stage];
  switch (kind) {
    case ActionKind::kReceiveInputs:
      return Passes(stage.inputs_in, b, now, w) ? 0 : -1;
    case ActionKind::kReceiveGradients:
      return Passes(stage.gradients_in, b, now, w) ? 0 : -1;
    case ActionKind::kForward:
      if (!Passes(stage.outputs_out, b - stage.in_flight * stage.replicas, now, w)) return -1;
      StartMessages(now, w, stage.outputs, b);
      return costs.forward_ms / worker.speed;
    case ActionKind::kBackward:
      if (!Passes(stage.gradients_out, b - kGradientBuffers * stage.replicas, now, w)) return -1;
      StartMessages(now, w, stage.gradients, b);
      for (size_t i = 0; i < costs.buckets.size() && stage.replicas > 1; ++i) {
        Push(now + costs.buckets[i].ready_ms / worker.speed, Event::Kind::kReduce, w,
             static_cast<int>(i), b);
      }
      return costs.backward_ms / worker.speed;
    default:
      return 0;  // Sends have started within their passes.
  }
}

double Simulator::StartUpdate(double now, int w, int64_t first) {
  Worker& worker = workers_[w];
  Stage& stage = stages_[worker.stage];
  const auto& buckets = pipeline_.stages[worker.stage].buckets;
  if (worker.bucket >= buckets.size()) return 0;  // No weights.
  if (stage.replicas > 1) {
    const auto round = first / stage.replicas;
    const auto at = static_cast<size_t>(round) * buckets.size() + worker.bucket;
    const Reduction& reduction = stage.reductions[at];
    if (!reduction.done) {
      worker.waits_round = static_cast<int64_t>(at);
      return -1;
    }
    if (reduction.time > now) {
      Wake(reduction.time, w);
      return -1;
    }
  }
  return buckets[worker.bucket].update_ms / worker.speed;
}

void Simulator::Finish(double now, int w, ActionKind kind, int64_t b) {
  Worker& worker = workers_[w];
  ++worker.next;
  worker.bucket = 0;
  const bool sends = kind == ActionKind::kSendOutputs || kind == ActionKind::kSendGradients;
  if (options_.trace && !sends) {
    run_.workers[w].compute.push_back({kind, b, ToNs(worker.since), ToNs(now)});
  }
  worker.since = now;
  run_.total_ms = std::max(run_.total_ms, now);
  if (kind == ActionKind::kReceiveInputs) Acknowledge(now, w, b);
  if (kind != ActionKind::kBackward) return;
  ++worker.backwards;
  Release(now, worker);
  done_[b] = std::max(done_[b], now);
  if (--left_[b] > 0) return;
  while (completed_ < options_.minibatches && left_[completed_] == 0) ++completed_;
  CheckSteady();
}

void Simulator::CheckSteady() {
  if (options_.window == 0) return;
  const int64_t end = std::min(completed_ - 1, options_.draining);
  while (options_.settled + (windows_ + 1) * options_.window <= end) {
    const int64_t from = options_.settled + windows_ * options_.window;
    const double ms = done(from + options_.window) - done(from);
    if (windows_ > 0 && std::abs(ms - last_window_ms_) <= kAgree * ms) {
      steady_ = ms / static_cast<double>(options_.window);
      return;
    }
    last_window_ms_ = ms;
    ++windows_;
  }
}

}  // namespace pd::simulation
