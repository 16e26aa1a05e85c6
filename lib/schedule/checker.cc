// Two independent passes. WorkerCheck reads one list and holds it against the rules of the
// schedule; Execution runs all lists together as a machine of workers, channels and barriers,
// always taking any step that is possible. Steps never disable one another (each channel has one
// writer and one reader), so the order in which they are taken does not matter: a deadlock found is
// a deadlock on every run.
#include "schedule/checker.h"

#include <algorithm>
#include <deque>

#include "base/error.h"

namespace pd {
namespace {

std::string Describe(int stage, int replica, const Action& action) {
  return fmt::format("stage {} replica {}: {} of minibatch {} on version {}", stage, replica,
                     NameOf(action.kind), action.minibatch, action.version);
}

class WorkerCheck {
 public:
  WorkerCheck(const PipelineShape& shape, int stage, int replica, int64_t minibatches,
              bool evaluation)
      : shape_(shape),
        stage_(stage),
        replica_(replica),
        minibatches_(minibatches),
        evaluation_(evaluation),
        forwards_(static_cast<size_t>(minibatches), 0),
        backwards_(static_cast<size_t>(minibatches), 0) {}

  std::string Run(const std::vector<Action>& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string fault = Step(list, i);
      if (!fault.empty()) return Describe(stage_, replica_, list[i]) + ": " + fault;
    }
    const std::string fault = AtEnd();
    return fault.empty() ? fault : fmt::format("stage {} replica {}: {}", stage_, replica_, fault);
  }

 private:
  using Kind = ActionKind;

  int64_t replicas() const { return shape_.stages[stage_].replicas; }
  int64_t depth() const { return shape_.stages[stage_].in_flight; }
  bool first() const { return stage_ == 0; }
  bool last() const { return stage_ + 1 == shape_.num_stages(); }

  int64_t VersionOf(int64_t minibatch) const {
    return evaluation_ ? 0 : std::max<int64_t>(0, minibatch / replicas() - depth() + 1);
  }

  static bool Is(const std::vector<Action>& list, size_t i, Kind kind, int64_t minibatch) {
    return i < list.size() && list[i].kind == kind && list[i].minibatch == minibatch;
  }

  std::string Step(const std::vector<Action>& list, size_t i) {
    const Action& action = list[i];
    if (action.minibatch < 0 || action.minibatch >= minibatches_) return "no such minibatch";
    if (action.kind == Kind::kUpdate) return Update(action);
    if (ReplicaOf(shape_, stage_, action.minibatch) != replica_) return "another replica's";
    if (action.version != VersionOf(action.minibatch)) {
      return fmt::format("expected version {}", VersionOf(action.minibatch));
    }
    // i - 1 wraps to a place past the end, which holds nothing.
    const size_t before = i - 1, after = i + 1;
    const int64_t b = action.minibatch;
    switch (action.kind) {
      case Kind::kReceiveInputs:
        return Is(list, after, Kind::kForward, b) ? "" : "its forward does not follow";
      case Kind::kForward:
        if (!Is(list, before, Kind::kReceiveInputs, b)) return "its receive does not precede it";
        if (!last() && !Is(list, after, Kind::kSendOutputs, b)) return "its send does not follow";
        return Forward(action);
      case Kind::kSendOutputs:
        if (last()) return "the last stage sends no outputs";
        return Is(list, before, Kind::kForward, b) ? "" : "its forward does not precede it";
      case Kind::kReceiveGradients:
        if (last()) return "the last stage receives no gradients";
        return Is(list, after, Kind::kBackward, b) ? "" : "its backward does not follow";
      case Kind::kBackward:
        if (!last() && !Is(list, before, Kind::kReceiveGradients, b)) {
          return "its receive does not precede it";
        }
        if (!first() && !Is(list, after, Kind::kSendGradients, b)) {
          return "its send does not follow";
        }
        return Backward(action);
      case Kind::kSendGradients:
        if (first()) return "the first stage sends no gradients";
        return Is(list, before, Kind::kBackward, b) ? "" : "its backward does not precede it";
      case Kind::kUpdate:
        break;
    }
    return "unknown kind of action";
  }

  std::string Forward(const Action& action) {
    if (forwards_[action.minibatch]++ > 0) return "runs twice";
    if (action.version > updates_) return fmt::format("version {} is the newest", updates_);
    if (!evaluation_ && ++in_flight_ > depth()) return fmt::format("{} in flight", in_flight_);
    return "";
  }

  std::string Backward(const Action& action) {
    if (evaluation_) return "an evaluation has no backward";
    if (forwards_[action.minibatch] == 0) return "before its forward";
    if (backwards_[action.minibatch]++ > 0) return "runs twice";
    --in_flight_;
    return "";
  }

  std::string Update(const Action& action) {
    if (evaluation_) return "an evaluation has no update";
    if (action.minibatch != updates_ * replicas()) {
      return fmt::format("expected the round of minibatch {}", updates_ * replicas());
    }
    const int64_t own = action.minibatch + replica_;
    if (own < minibatches_ && backwards_[own] == 0) {
      return fmt::format("before the backward of minibatch {}", own);
    }
    ++updates_;
    return action.version == updates_ ? "" : fmt::format("expected to write version {}", updates_);
  }

  std::string AtEnd() const {
    for (int64_t b = replica_; b < minibatches_; b += replicas()) {
      if (forwards_[b] == 0) return fmt::format("no forward of minibatch {}", b);
      if (!evaluation_ && backwards_[b] == 0) {
        return fmt::format("no backward of minibatch {}", b);
      }
    }
    const int64_t rounds = evaluation_ ? 0 : (minibatches_ + replicas() - 1) / replicas();
    return updates_ == rounds ? "" : fmt::format("{} updates for {} rounds", updates_, rounds);
  }

  const PipelineShape& shape_;
  const int stage_, replica_;
  const int64_t minibatches_;
  const bool evaluation_;
  std::vector<int> forwards_, backwards_;  ///< How often each minibatch ran.
  int64_t updates_ = 0, in_flight_ = 0;
};

class Execution {
 public:
  Execution(const PipelineShape& shape, const ActionLists& lists, int64_t capacity)
      : shape_(shape), lists_(lists), capacity_(capacity) {
    for (const auto& stage : shape.stages) next_.emplace_back(stage.replicas, 0);
    for (int s = 0; s + 1 < shape.num_stages(); ++s) {
      const int pairs = shape.stages[s].replicas * shape.stages[s + 1].replicas;
      forward_.emplace_back(pairs);
      backward_.emplace_back(pairs);
    }
  }

  std::string Run() {
    bool moved = true;
    while (moved && fault_.empty()) {
      moved = false;
      for (int s = 0; s < shape_.num_stages(); ++s) {
        for (int r = 0; r < shape_.stages[s].replicas; ++r) {
          while (fault_.empty() && Current(s, r) != nullptr && Step(s, r)) moved = true;
        }
      }
    }
    return fault_.empty() ? AtEnd() : fault_;
  }

 private:
  using Kind = ActionKind;
  using Channel = std::deque<int64_t>;

  const Action* Current(int s, int r) const {
    const auto& list = lists_[s][r];
    return next_[s][r] < list.size() ? &list[next_[s][r]] : nullptr;
  }

  // The channel of stages s and s + 1 that `minibatch` travels through.
  Channel& Of(std::vector<std::vector<Channel>>& channels, int s, int64_t minibatch) {
    return channels[s][ReplicaOf(shape_, s, minibatch) * shape_.stages[s + 1].replicas +
                       ReplicaOf(shape_, s + 1, minibatch)];
  }

  bool Step(int s, int r) {
    const Action& action = *Current(s, r);
    const int64_t b = action.minibatch;
    bool moves = true;
    switch (action.kind) {
      case Kind::kForward:
      case Kind::kBackward:
        break;
      case Kind::kUpdate:
        return Update(s, r);
      case Kind::kReceiveInputs:
        moves = s == 0 || Receive(Of(forward_, s - 1, b), s, r);
        break;
      case Kind::kSendOutputs:
        moves = Send(Of(forward_, s, b), s + 1, Kind::kReceiveInputs, b);
        break;
      case Kind::kReceiveGradients:
        moves = Receive(Of(backward_, s, b), s, r);
        break;
      case Kind::kSendGradients:
        moves = Send(Of(backward_, s - 1, b), s - 1, Kind::kReceiveGradients, b);
        break;
    }
    if (moves) ++next_[s][r];
    return moves;
  }

  // A full channel takes a message all the same when its reader stands there waiting for it.
  bool Send(Channel& channel, int to, Kind receive, int64_t minibatch) {
    const Action* reader = Current(to, ReplicaOf(shape_, to, minibatch));
    const bool awaited =
        reader != nullptr && reader->kind == receive && reader->minibatch == minibatch;
    if (static_cast<int64_t>(channel.size()) >= capacity_ && !(channel.empty() && awaited)) {
      return false;
    }
    channel.push_back(minibatch);
    return true;
  }

  bool Receive(Channel& channel, int s, int r) {
    if (channel.empty()) return false;
    if (channel.front() != Current(s, r)->minibatch) {
      fault_ =
          fmt::format("{}: minibatch {} arrives", Describe(s, r, *Current(s, r)), channel.front());
      return false;
    }
    channel.pop_front();
    return true;
  }

  // All replicas stand at the same update, and pass it together.
  bool Update(int s, int r) {
    const Action& mine = *Current(s, r);
    for (int other = 0; other < shape_.stages[s].replicas; ++other) {
      const Action* theirs = Current(s, other);
      if (theirs == nullptr || theirs->kind != Kind::kUpdate) return false;
      if (*theirs != mine) {
        fault_ = Describe(s, r, mine) + " meets " + Describe(s, other, *theirs);
        return false;
      }
    }
    for (auto& next : next_[s]) ++next;
    return true;
  }

  std::string AtEnd() const {
    std::string waiting;
    for (int s = 0; s < shape_.num_stages(); ++s) {
      for (int r = 0; r < shape_.stages[s].replicas; ++r) {
        if (Current(s, r) == nullptr) continue;
        waiting += (waiting.empty() ? "deadlock: " : "; ") + Describe(s, r, *Current(s, r));
      }
    }
    if (!waiting.empty()) return waiting;
    for (const auto* channels : {&forward_, &backward_}) {
      for (size_t s = 0; s < channels->size(); ++s) {
        for (const Channel& channel : (*channels)[s]) {
          if (!channel.empty()) {
            return fmt::format("minibatch {} is sent and never received between stages {} and {}",
                               channel.front(), s, s + 1);
          }
        }
      }
    }
    return "";
  }

  const PipelineShape& shape_;
  const ActionLists& lists_;
  const int64_t capacity_;
  std::vector<std::vector<size_t>> next_;  ///< next_[stage][replica]: index of the action to do.
  std::vector<std::vector<Channel>> forward_, backward_;
  std::string fault_;
};

template <typename Make>
ActionLists ForAllWorkers(const PipelineShape& shape, const Make& make) {
  ActionLists lists(shape.stages.size());
  for (int s = 0; s < shape.num_stages(); ++s) {
    for (int r = 0; r < shape.stages[s].replicas; ++r) lists[s].push_back(make(s, r));
  }
  return lists;
}

}  // namespace

ActionLists MakeAllActions(std::string_view name, const PipelineShape& shape, int64_t minibatches) {
  return ForAllWorkers(shape,
                       [&](int s, int r) { return MakeActions(name, shape, s, r, minibatches); });
}

ActionLists MakeAllEvaluationActions(const PipelineShape& shape, int64_t minibatches) {
  return ForAllWorkers(
      shape, [&](int s, int r) { return MakeEvaluationActions(shape, s, r, minibatches); });
}

std::string CheckActions(const PipelineShape& shape, const ActionLists& lists, int64_t minibatches,
                         const CheckOptions& options) {
  PD_CHECK(lists.size() == shape.stages.size(), "lists of {} stages for {}", lists.size(),
           shape.stages.size());
  for (int s = 0; s < shape.num_stages(); ++s) {
    PD_CHECK(static_cast<int>(lists[s].size()) == shape.stages[s].replicas,
             "stage {}: {} lists for {} replicas", s, lists[s].size(), shape.stages[s].replicas);
    for (int r = 0; r < shape.stages[s].replicas; ++r) {
      WorkerCheck check(shape, s, r, minibatches, options.evaluation);
      std::string fault = check.Run(lists[s][r]);
      if (!fault.empty()) return fault;
    }
  }
  return Execution(shape, lists, options.channel_capacity).Run();
}

}  // namespace pd
