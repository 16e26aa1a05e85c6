// A discrete-event simulation of the action lists that workers run. Events are popped in time
// order, so links are claimed in the order in which messages become ready; a message's arrival is
// known when it is sent, and whoever waits for it is woken for that time.
#include "partition/simulator.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

#include "base/error.h"

namespace pd {
namespace {

constexpr double kPsPerMs = 1e9;
constexpr int64_t kMeasured = 48;   // Minibatches measured, at least.
constexpr int64_t kMaxCycle = 512;  // Longest common cycle of the replicas that is measured whole.

// Something that workers wait for: parts come one by one, the last sets the time.
struct Gate {
  int64_t missing = 0;
  double time = 0;
  int waiting = -1;  // A worker.
};

struct Worker {
  int stage = 0, replica = 0;
  std::vector<Action> actions;
  size_t next = 0;
  double send_free = 0, receive_free = 0;
};

class Simulator {
 public:
  Simulator(const std::string& schedule, const PipelineShape& shape,
            const SimulatedPipeline& pipeline, int64_t minibatches)
      : shape_(shape), pipeline_(pipeline), minibatches_(minibatches), done_(minibatches, 0.0) {
    for (int s = 0; s < shape.num_stages(); ++s) {
      first_.push_back(static_cast<int>(workers_.size()));
      for (int r = 0; r < shape.stages[s].replicas; ++r) {
        workers_.push_back({s, r, MakeActions(schedule, shape, s, r, minibatches)});
        actions_ += static_cast<int64_t>(workers_.back().actions.size());
      }
    }
    MakeGates();
  }

  void Run() {
    for (int w = 0; w < static_cast<int>(workers_.size()); ++w) ready_.push({0.0, w});
    while (!ready_.empty()) {
      const auto [now, w] = ready_.top();
      ready_.pop();
      Step(now, w);
    }
    for (const Worker& worker : workers_) {
      PD_CHECK(worker.next == worker.actions.size(), "stage {} replica {} waits for ever",
               worker.stage, worker.replica);
    }
  }

  double done(int64_t minibatch) const { return done_[minibatch]; }
  int64_t actions() const { return actions_; }

 private:
  using Event = std::pair<double, int>;  // When, which worker.

  void MakeGates() {
    const auto stages = static_cast<size_t>(shape_.num_stages());
    std::vector<int64_t> inputs(stages, 0), gradients(stages, 0);
    outgoing_.resize(2 * stages);
    for (const auto& message : pipeline_.messages) {
      ++(message.gradient ? gradients : inputs)[message.to];
      outgoing_[2 * message.from + (message.gradient ? 1 : 0)].push_back(&message);
    }
    for (size_t s = 0; s < stages; ++s) {
      inputs_.emplace_back(minibatches_, Gate{inputs[s]});
      gradients_.emplace_back(minibatches_, Gate{gradients[s]});
      const int64_t r = shape_.stages[s].replicas;
      std::vector<Gate> rounds;
      for (int64_t b = 0; b < minibatches_; b += r) {
        rounds.insert(rounds.end(), static_cast<size_t>(r), Gate{std::min(r, minibatches_ - b)});
      }
      rounds_.push_back(std::move(rounds));
    }
  }

  void Wake(double time, int worker) { ready_.push({time, worker}); }

  // Whether `gate` is open at `now`; if not, `worker` is woken when it is, and tries again.
  bool Passes(Gate& gate, double now, int worker) {
    if (gate.missing > 0) {
      gate.waiting = worker;
      return false;
    }
    if (gate.time <= now) return true;
    Wake(gate.time, worker);
    return false;
  }

  void Arrive(Gate& gate, double time) {
    gate.time = std::max(gate.time, time);
    if (--gate.missing == 0 && gate.waiting >= 0) Wake(gate.time, gate.waiting);
  }

  // Runs the next action of `w` at `now`, if what it waits for is there.
  void Step(double now, int w) {
    Worker& worker = workers_[w];
    if (worker.next == worker.actions.size()) return;
    const Action action = worker.actions[worker.next];
    const auto& stage = pipeline_.stages[worker.stage];
    double takes = 0;
    switch (action.kind) {
      case ActionKind::kReceiveInputs:
        if (!Passes(inputs_[worker.stage][action.minibatch], now, w)) return;
        break;
      case ActionKind::kReceiveGradients:
        if (!Passes(gradients_[worker.stage][action.minibatch], now, w)) return;
        break;
      case ActionKind::kForward:
        takes = stage.forward_ms;
        break;
      case ActionKind::kBackward:
        takes = stage.backward_ms;
        StartBackward(now, worker, action.minibatch);
        break;
      case ActionKind::kSendOutputs:
        Send(now, worker, action.minibatch, false);
        break;
      case ActionKind::kSendGradients:
        Send(now, worker, action.minibatch, true);
        break;
      case ActionKind::kUpdate:
        if (!Passes(rounds_[worker.stage][action.minibatch + worker.replica], now, w)) return;
        takes = stage.update_ms;
        break;
    }
    ++worker.next;
    Wake(now + takes, w);
  }

  void Send(double now, Worker& from, int64_t minibatch, bool gradient) {
    for (const auto* message : outgoing_[2 * from.stage + (gradient ? 1 : 0)]) {
      Worker& to = workers_[first_[message->to] + ReplicaOf(shape_, message->to, minibatch)];
      const double end = std::max({now, from.send_free, to.receive_free}) + message->ms;
      from.send_free = to.receive_free = end;
      auto& gates = gradient ? gradients_ : inputs_;
      Arrive(gates[message->to][minibatch], end + pipeline_.latency_ms);
    }
  }

  // The round's update may run when all its backward passes have ended and the all-reduce, which
  // starts with the last of them, is through.
  void StartBackward(double now, Worker& worker, int64_t minibatch) {
    const int s = worker.stage;
    const auto& stage = pipeline_.stages[s];
    done_[minibatch] = std::max(done_[minibatch], now + stage.backward_ms);
    const int64_t replicas = shape_.stages[s].replicas;
    const int64_t round = minibatch / replicas * replicas;
    double end = now + stage.backward_ms;
    if (replicas > 1 && rounds_[s][round].missing == 1) {
      double start = now;
      for (int64_t r = 0; r < replicas; ++r) {
        const Worker& member = workers_[first_[s] + r];
        start = std::max({start, member.send_free, member.receive_free});
      }
      for (int64_t r = 0; r < replicas; ++r) {
        Worker& member = workers_[first_[s] + r];
        member.send_free = member.receive_free = start + stage.all_reduce_ms;
      }
      end = std::max(end, start + stage.all_reduce_ms + 2 * pipeline_.latency_ms);
    }
    for (int64_t r = 0; r < replicas; ++r) Arrive(rounds_[s][round + r], end);
  }

  const PipelineShape& shape_;
  const SimulatedPipeline& pipeline_;
  int64_t minibatches_;
  std::vector<double> done_;  // End of each minibatch's last backward, at whichever stage.
  std::vector<Worker> workers_;
  std::vector<int> first_;  // For each stage, its first worker.
  std::vector<std::vector<const SimulatedPipeline::Message*>> outgoing_;  // [2 · stage + gradient]
  std::vector<std::vector<Gate>> inputs_, gradients_;                     // [stage][minibatch]
  std::vector<std::vector<Gate>> rounds_;  // [stage][first minibatch + replica]
  std::priority_queue<Event, std::vector<Event>, std::greater<>> ready_;
  int64_t actions_ = 0;
};

}  // namespace

SimulatedPipeline MakePipeline(const CostGraph& graph, const std::vector<StageChoice>& stages,
                               double bytes_per_ms, double latency_ms) {
  SimulatedPipeline pipeline;
  pipeline.latency_ms = latency_ms;
  const size_t count = stages.size();
  // Bytes [from][to]; -1 where nothing goes: a tensor of no bytes is waited for like any other.
  std::vector<int64_t> outputs(count * count, -1), gradients(count * count, -1);
  const auto add = [](int64_t& bytes, int64_t more) { bytes = std::max<int64_t>(bytes, 0) + more; };
  std::vector<int> stage_of(static_cast<size_t>(graph.size()), 0);
  for (size_t s = 0; s < count; ++s) {
    SimulatedPipeline::Stage stage;
    int64_t forward = 0, backward = 0, update = 0, weights = 0;
    for (int l = stages[s].begin; l < stages[s].end; ++l) {
      const CostGraph::Layer& layer = graph.layers[l];
      stage_of[l] = static_cast<int>(s);
      forward += layer.forward_ps;
      backward += layer.backward_ps;
      update += layer.update_ps;
      weights += layer.parameter_bytes;
    }
    stage.forward_ms = static_cast<double>(forward) / kPsPerMs;
    stage.backward_ms = static_cast<double>(backward) / kPsPerMs;
    stage.update_ms = static_cast<double>(update) / kPsPerMs;
    const double m = stages[s].replicas;
    stage.all_reduce_ms = 2 * (m - 1) / m * static_cast<double>(weights) / bytes_per_ms;
    pipeline.stages.push_back(stage);
  }
  for (int l = 0; l < graph.size(); ++l) {
    const CostGraph::Layer& layer = graph.layers[l];
    const int from = stage_of[l];
    const int last_reader = layer.consumers.empty() ? from : stage_of[layer.consumers.back()];
    int reader = from;
    for (const int consumer : layer.consumers) {
      const int to = stage_of[consumer];
      if (to == from) continue;
      if (to != reader) add(outputs[from * count + to], layer.activation_bytes);
      const bool gradient = layer.needs_gradient && (to != reader || to != last_reader);
      if (gradient) add(gradients[to * count + from], layer.activation_bytes);
      reader = to;
    }
  }
  for (size_t from = 0; from < count; ++from) {
    for (size_t to = 0; to < count; ++to) {
      const int64_t bytes = from < to ? outputs[from * count + to] : gradients[from * count + to];
      if (bytes < 0) continue;
      pipeline.messages.push_back({static_cast<int>(from), static_cast<int>(to), from > to,
                                   static_cast<double>(bytes) / bytes_per_ms});
    }
  }
  return pipeline;
}

Simulation Simulate(const std::string& schedule, const PipelineShape& shape,
                    const SimulatedPipeline& pipeline) {
  int64_t cycle = 1, widest = 1, ahead = 1;
  for (const auto& stage : shape.stages) {
    widest = std::max<int64_t>(widest, stage.replicas);
    ahead = std::max<int64_t>(ahead, int64_t{stage.replicas} * stage.in_flight);
    cycle = std::lcm(cycle, int64_t{stage.replicas});
    if (cycle > kMaxCycle) cycle = kMaxCycle;
  }
  cycle = std::max(cycle, widest);
  const int64_t measured = (kMeasured + cycle - 1) / cycle * cycle;
  const int64_t from = 2 * ahead;
  Simulator simulator(schedule, shape, pipeline, from + measured + ahead + cycle);
  simulator.Run();
  const double ms = simulator.done(from + measured) - simulator.done(from);
  return {ms / static_cast<double>(measured), simulator.actions()};
}

}  // namespace pd
