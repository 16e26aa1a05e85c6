// A stage as two static lists of kernel calls. The work is in the constructor, which decides where
// every tensor lies; the passes only turn places into pointers and call the kernels in order.
#include "stage/program.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "stage/packer.h"

namespace pd {

StageProgram::StageProgram(const Model& model, const ModelPlan& plan, const WeightLayout& weights,
                           Backend& backend, const Cut& cut, int stage)
    : model_(&model),
      plan_(&plan),
      backend_(&backend),
      stage_(stage),
      local_step_(model.num_layers(), -1),
      value_(model.num_tensors()),
      incoming_(cut.Incoming(stage, true)),
      outgoing_(cut.Outgoing(stage, true)),
      messages_(cut.messages) {
  for (const int l : cut.layers[stage]) {
    local_step_[l] = static_cast<int>(steps_.size());
    Step step;
    step.layer = l;
    step.op = &plan.op(l);
    step.op->Prepare();
    steps_.push_back(std::move(step));
  }
  for (const WeightLayout::Entry& entry : weights.params()) {
    steps_[local_step_[entry.layer]].params.push_back(entry.offset);
  }
  for (const WeightLayout::Entry& entry : weights.state()) {
    steps_[local_step_[entry.layer]].state.push_back(entry.offset);
  }
  PlaceValues(cut);
  PlanGradients(cut);
  PlaceBackwardScratch();
  for (Step& step : steps_) {
    step.x_now.resize(step.x.size());
    step.dx_now.resize(step.x.size());
    step.params_now.resize(step.params.size());
    step.dparams_now.resize(step.params.size());
    step.state_now.resize(step.state.size());
  }
}

StageProgram::Place StageProgram::KeepInArena(size_t bytes) {
  const Place place{Base::kArena, arena_bytes_};
  arena_bytes_ += Align(bytes);
  return place;
}

void StageProgram::PlaceValues(const Cut& cut) {
  // What is read where.
  std::vector<int> last_reader(model_->num_tensors(), -1);
  std::vector<bool> kept(model_->num_tensors(), false), sent(model_->num_tensors(), false);
  std::vector<bool> comes_in(model_->num_tensors(), false);
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const OpInfo& info = step.op->info();
    for (const TensorId t : model_->layers()[step.layer].inputs) {
      last_reader[t] = static_cast<int>(i);
      if (info.backward_reads_x) kept[t] = true;
      if (LocalStep(model_->ProducerOf(t)) < 0) comes_in[t] = true;
    }
    if (info.backward_reads_y) kept[model_->OutputOf(step.layer)] = true;
  }
  for (const BorderMessage& m : cut.messages) {
    if (m.from == stage_ && !m.gradient) sent[m.tensor] = true;
  }
  for (TensorId t = 0; t < model_->num_inputs(); ++t)
    comes_in[t] = comes_in[t] || (stage_ == 0 && sent[t]);

  for (TensorId t = 0; t < model_->num_tensors(); ++t) {
    const Layout& layout = plan_->layout(t);
    if (comes_in[t]) {
      const Place dense{Base::kInput, inputs_.size()};
      inputs_.push_back(t);
      value_[t] = dense;
      if (!layout.dense()) {
        value_[t] = KeepInArena(layout.bytes);
        imports_.push_back({.from = dense, .to = value_[t], .tensor = t});
      }
    }
    if (sent[t]) {
      const size_t bytes = static_cast<size_t>(Elements(layout.dims)) * SizeOf(layout.dtype);
      const Place payload{Base::kOutput, outputs_.size()};
      outputs_.push_back({.tensor = t, .bytes = bytes});
      exports_.emplace_back();
      if (comes_in[t]) {
        forwards_.push_back({.from = value_[t], .to = payload, .tensor = t});
      } else if (layout.dense()) {
        value_[t] = payload;
      } else {
        value_[t] = KeepInArena(layout.bytes);
        exports_.back() = {.from = value_[t], .to = payload, .tensor = t};
      }
    }
    const bool here = LocalStep(model_->ProducerOf(t)) >= 0;
    if (here && value_[t].base == Base::kNone && (kept[t] || last_reader[t] < 0)) {
      value_[t] = KeepInArena(layout.bytes);
    }
  }
  PlaceForwardScratch(last_reader, kept);
}

void StageProgram::PlaceForwardScratch(const std::vector<int>& last_reader,
                                       const std::vector<bool>& kept) {
  std::vector<Lifetime> pieces;
  std::vector<Place*> places;
  for (size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    const OpInfo& info = step.op->info();
    const int now = static_cast<int>(i);
    const TensorId y = model_->OutputOf(step.layer);
    if (value_[y].base == Base::kNone) {
      PD_CHECK(!kept[y], "tensor {} must be kept", model_->tensor_name(y));
      pieces.push_back({info.y.bytes, now, last_reader[y]});
      places.push_back(&value_[y]);
    }
    if (info.workspace_bytes > 0) {
      pieces.push_back({info.workspace_bytes, now, now});
      places.push_back(&step.forward_workspace);
    }
    if (info.saved_bytes > 0) step.saved = KeepInArena(info.saved_bytes);
    if (model_->layers()[step.layer].layer->is_loss()) {
      losses_.push_back({.layer = step.layer, .values = value_[y].offset});
    }
  }
  const Packing packing = Pack(pieces);
  for (size_t i = 0; i < places.size(); ++i) *places[i] = {Base::kScratch, packing.offsets[i]};
  scratch_bytes_ = packing.bytes;

  outputs_of_step_.resize(steps_.size());
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const int producer = LocalStep(model_->ProducerOf(outputs_[o].tensor));
    if (producer >= 0) outputs_of_step_[producer].push_back(static_cast<int>(o));
  }
  for (Step& step : steps_) {
    for (const TensorId t : model_->layers()[step.layer].inputs) step.x.push_back(value_[t]);
    step.y = value_[model_->OutputOf(step.layer)];
  }
}

void StageProgram::PlanGradients(const Cut& cut) {
  for (Step& step : steps_) {
    const Model::Node& node = model_->layers()[step.layer];
    step.targets.resize(node.inputs.size());
    step.wants_data =
        std::find(node.wants_dx.begin(), node.wants_dx.end(), true) != node.wants_dx.end();
    step.runs_backward = step.wants_data || !step.params.empty();
  }
  for (TensorId t = model_->num_inputs(); t < model_->num_tensors(); ++t) {
    if (model_->needs_gradient(t)) PlanContributions(t, cut);
  }
}

void StageProgram::PlanContributions(TensorId tensor, const Cut& cut) {
  // Contributions, the last consumer's first: from steps here, and from received messages.
  struct Contribution {
    int consumer, input;
    int message;  // index in incoming_, or -1
    int sent;     // index in outgoing_ of the message that it goes into, or -1: the tensor is made
                  // here
  };
  const int producer = LocalStep(model_->ProducerOf(tensor));
  std::vector<Contribution> contributions;
  for (size_t s = 0; s < steps_.size(); ++s) {
    const Model::Node& node = model_->layers()[steps_[s].layer];
    for (size_t j = 0; j < node.inputs.size(); ++j) {
      if (node.inputs[j] != tensor) continue;
      int sent = -1;
      for (size_t m = 0; m < outgoing_.size() && producer < 0; ++m) {
        const BorderMessage& message = cut.messages[outgoing_[m]];
        const auto& consumers = message.consumers;
        if (message.tensor == tensor &&
            std::find(consumers.begin(), consumers.end(), steps_[s].layer) != consumers.end()) {
          sent = static_cast<int>(m);
        }
      }
      contributions.push_back({steps_[s].layer, static_cast<int>(j), -1, sent});
    }
  }
  for (size_t m = 0; m < incoming_.size(); ++m) {
    const BorderMessage& message = cut.messages[incoming_[m]];
    if (message.tensor != tensor) continue;
    contributions.push_back({message.consumers.back(), 0, static_cast<int>(m), -1});
  }
  std::sort(contributions.begin(), contributions.end(), [](const auto& a, const auto& b) {
    return std::pair(a.consumer, a.input) > std::pair(b.consumer, b.input);
  });

  // One accumulator for a tensor made here, or one a message sent. Contributions to a message are
  // adjacent.
  std::vector<Fold> waiting;
  int accumulator = -1;
  int sent = -2;
  int last_step = -1;
  const bool dense = plan_->layout(tensor).dense();
  for (const Contribution& c : contributions) {
    const bool first = c.sent != sent;
    if (first) {
      sent = c.sent;
      accumulator = static_cast<int>(accumulators_.size());
      Accumulator made{.tensor = tensor, .place = {}, .sent = sent};
      if (dense && sent >= 0) made.place = {Base::kSent, static_cast<size_t>(sent)};
      if (dense && c.message >= 0) made.place = {Base::kReceived, static_cast<size_t>(c.message)};
      accumulators_.push_back(made);
    }
    if (c.message >= 0) {
      // A dense first message is its own accumulator: nothing to do.
      if (!(first && dense)) waiting.push_back({accumulator, c.message, first, {}});
      continue;
    }
    Step& step = steps_[LocalStep(c.consumer)];
    step.folds.insert(step.folds.end(), waiting.begin(), waiting.end());
    waiting.clear();
    Target target{.accumulator = accumulator, .first = first, .temporary = {}};
    for (size_t j = step.targets.size(); j-- > static_cast<size_t>(c.input) + 1;) {
      const Target& later = step.targets[j];
      if (later.accumulator == accumulator && !later.first && later.into < 0)
        target.into = static_cast<int>(j);
    }
    step.targets[c.input] = target;
    last_step = LocalStep(c.consumer);
    const bool last_of_message = sent >= 0 && (&c == &contributions.back() || (&c)[1].sent != sent);
    if (last_of_message) steps_[last_step].completed.push_back(accumulator);
  }
  if (producer >= 0) {
    Step& step = steps_[producer];
    step.folds.insert(step.folds.end(), waiting.begin(), waiting.end());
    step.dy = accumulator;
  }
}

void StageProgram::PlaceBackwardScratch() {
  const int count = static_cast<int>(steps_.size());
  std::vector<Lifetime> pieces;
  std::vector<Place*> places;
  std::vector<int> begin(accumulators_.size(), -1), end(accumulators_.size(), -1);
  const auto touch = [&](int accumulator, int now) {
    if (accumulator < 0) return;
    if (begin[accumulator] < 0) begin[accumulator] = now;
    end[accumulator] = now;
  };
  for (int now = 0; now < count; ++now) {
    Step& step = steps_[count - 1 - now];
    for (const Fold& fold : step.folds) touch(fold.accumulator, now);
    touch(step.dy, now);
    for (Target& target : step.targets) {
      touch(target.accumulator, now);
      if (target.accumulator >= 0 && !target.first) {
        const Layout& layout = plan_->layout(accumulators_[target.accumulator].tensor);
        pieces.push_back({layout.bytes, now, now});
        places.push_back(&target.temporary);
      }
    }
    for (Fold& fold : step.folds) {
      const Layout& layout = plan_->layout(accumulators_[fold.accumulator].tensor);
      if (fold.first || layout.dense()) continue;
      pieces.push_back({layout.bytes, now, now});
      places.push_back(&fold.temporary);
    }
    const size_t workspace = step.op->info().workspace_bytes;
    if (workspace > 0) {
      pieces.push_back({workspace, now, now});
      places.push_back(&step.backward_workspace);
    }
  }
  for (size_t a = 0; a < accumulators_.size(); ++a) {
    if (accumulators_[a].place.base != Base::kNone) continue;
    pieces.push_back({plan_->layout(accumulators_[a].tensor).bytes, begin[a], end[a]});
    places.push_back(&accumulators_[a].place);
  }
  const Packing packing = Pack(pieces);
  for (size_t i = 0; i < places.size(); ++i) *places[i] = {Base::kScratch, packing.offsets[i]};
  scratch_bytes_ = std::max(scratch_bytes_, packing.bytes);
}

std::byte* StageProgram::At(const Place& place, const StageMemory& memory) const {
  switch (place.base) {
    case Base::kNone:
      return nullptr;
    case Base::kInput:
      // Only ever read: OpArgs::x and Copy::from are const.
      return const_cast<std::byte*>(memory.inputs[place.offset]);
    case Base::kOutput:
      return memory.outputs[place.offset];
    case Base::kArena:
      return memory.arena + place.offset;
    case Base::kScratch:
      return memory.scratch + place.offset;
    case Base::kReceived:
      return memory.gradients_received[place.offset];
    case Base::kSent:
      return memory.gradients_sent[place.offset];
  }
  return nullptr;
}

OpArgs StageProgram::Bind(Step& step, const StageMemory& memory) const {
  for (size_t i = 0; i < step.x.size(); ++i) step.x_now[i] = At(step.x[i], memory);
  for (size_t i = 0; i < step.params.size(); ++i) {
    step.params_now[i] = memory.weights + step.params[i];
    step.dparams_now[i] =
        memory.weight_gradients == nullptr ? nullptr : memory.weight_gradients + step.params[i];
  }
  for (size_t i = 0; i < step.state.size(); ++i) step.state_now[i] = memory.state + step.state[i];
  return {.x = step.x_now,
          .y = At(step.y, memory),
          .dy = nullptr,
          .dx = step.dx_now,
          .params = step.params_now,
          .dparams = step.dparams_now,
          .state = step.state_now,
          .saved = At(step.saved, memory),
          .workspace = nullptr,
          .minibatch = memory.minibatch,
          .training = memory.training};
}

void StageProgram::Forward(const StageMemory& memory, StageObserver& observer) {
  for (const Copy& copy : forwards_) {
    backend_->Copy(At(copy.to, memory), At(copy.from, memory), plan_->layout(copy.tensor).bytes);
  }
  for (size_t o = 0; o < outputs_.size(); ++o) {
    if (LocalStep(model_->ProducerOf(outputs_[o].tensor)) < 0)
      observer.OutputReady(static_cast<int>(o));
  }
  for (const Copy& copy : imports_) {
    backend_->FromDense(plan_->layout(copy.tensor), At(copy.from, memory), At(copy.to, memory));
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    observer.LayerBegins(step.layer);
    OpArgs args = Bind(step, memory);
    args.workspace = At(step.forward_workspace, memory);
    step.op->Forward(args);
    observer.LayerEnds(step.layer);
    for (const int o : outputs_of_step_[i]) {
      const Copy& copy = exports_[o];
      if (copy.from.base != Base::kNone) {
        backend_->ToDense(plan_->layout(copy.tensor), At(copy.from, memory), At(copy.to, memory));
      }
      observer.OutputReady(o);
    }
  }
}

void StageProgram::FoldMessage(const Fold& fold, const StageMemory& memory) {
  const Accumulator& accumulator = accumulators_[fold.accumulator];
  const Layout& layout = plan_->layout(accumulator.tensor);
  const std::byte* message = memory.gradients_received[fold.message];
  std::byte* sum = At(accumulator.place, memory);
  if (fold.first) {
    backend_->FromDense(layout, message, sum);
  } else if (layout.dense()) {
    backend_->Accumulate(sum, message, layout.stored());
  } else {
    backend_->FromDense(layout, message, At(fold.temporary, memory));
    backend_->Accumulate(sum, At(fold.temporary, memory), layout.stored());
  }
}

void StageProgram::Backward(const StageMemory& memory, StageObserver& observer) {
  for (size_t i = steps_.size(); i-- > 0;) {
    Step& step = steps_[i];
    if (!step.runs_backward) continue;
    for (const Fold& fold : step.folds) FoldMessage(fold, memory);
    observer.LayerBegins(step.layer);
    OpArgs args = Bind(step, memory);
    args.workspace = At(step.backward_workspace, memory);
    if (step.dy >= 0) args.dy = At(accumulators_[step.dy].place, memory);
    if (step.wants_data) {
      for (size_t j = 0; j < step.targets.size(); ++j) {
        const Target& target = step.targets[j];
        step.dx_now[j] = target.accumulator < 0 ? nullptr
                         : target.first ? At(accumulators_[target.accumulator].place, memory)
                                        : At(target.temporary, memory);
      }
      step.op->BackwardData(args);
      AddTargets(step, memory);
      for (const int a : step.completed) Complete(accumulators_[a], memory, observer);
    }
    if (!step.params.empty()) step.op->BackwardWeights(args);
    observer.LayerEnds(step.layer);
    if (!step.params.empty()) observer.WeightGradientReady(static_cast<int>(i));
  }
}

// The last input first, as the order of contributions is. A layer that reads a tensor more than
// once gives one gradient for it, the sum over these inputs: so it does as the sender of a message,
// too.
void StageProgram::AddTargets(const Step& step, const StageMemory& memory) {
  for (size_t j = step.targets.size(); j-- > 0;) {
    const Target& target = step.targets[j];
    if (target.accumulator < 0 || target.first || target.into >= 0) continue;
    const Accumulator& sum = accumulators_[target.accumulator];
    const size_t count = plan_->layout(sum.tensor).stored();
    for (size_t i = j; i-- > 0;) {
      if (step.targets[i].into != static_cast<int>(j)) continue;
      backend_->Accumulate(At(target.temporary, memory), At(step.targets[i].temporary, memory),
                           count);
    }
    backend_->Accumulate(At(sum.place, memory), At(target.temporary, memory), count);
  }
}

void StageProgram::Complete(const Accumulator& accumulator, const StageMemory& memory,
                            StageObserver& observer) {
  if (accumulator.place.base != Base::kSent) {
    backend_->ToDense(plan_->layout(accumulator.tensor), At(accumulator.place, memory),
                      memory.gradients_sent[accumulator.sent]);
  }
  observer.GradientReady(accumulator.sent);
}

}  // namespace pd
