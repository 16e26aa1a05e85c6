#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "stage/cut.h"
#include "stage/model_plan.h"
#include "stage/weights.h"

namespace pd {

/// Told of progress inside Forward and Backward, on the computing thread, so that what is ready can
/// leave while the rest is computed. Calls must be short.
class StageObserver {
 public:
  virtual ~StageObserver() = default;
  virtual void LayerBegins(int /*layer*/) {}
  virtual void LayerEnds(int /*layer*/) {}
  /// Output `output` (index in StageProgram::outputs) is complete.
  virtual void OutputReady(int /*output*/) {}
  /// Gradient message `index` (in Outgoing(stage, true) order) is complete.
  virtual void GradientReady(int /*index*/) {}
  /// The gradients of the parameters of the stage's `i`-th layer are complete.
  virtual void WeightGradientReady(int /*i*/) {}
};

/// The memory of one pass of one minibatch. Payloads of messages are dense.
struct StageMemory {
  std::byte* arena =
      nullptr;  ///< arena_bytes(): kept from this minibatch's forward to its backward.
  std::byte* scratch =
      nullptr;  ///< scratch_bytes(): of this worker; nothing survives a pass in it.
  std::span<const std::byte* const> inputs;  ///< In the order of StageProgram::inputs().
  /// In the order of StageProgram::outputs(): written by Forward, read by Backward.
  std::span<std::byte* const> outputs = {};
  std::span<std::byte* const>
      gradients_received;  ///< In Incoming(stage, true) order; may be overwritten.
  std::span<std::byte* const> gradients_sent;  ///< In Outgoing(stage, true) order.
  const std::byte* weights = nullptr;          ///< The version of this minibatch.
  std::byte* weight_gradients = nullptr;
  std::byte* state = nullptr;  ///< Running statistics.
  uint64_t minibatch = 0;      ///< Over the whole run, from 0.
  bool training = true;
};

/// One stage compiled for one minibatch size: which kernel runs when, on which memory. All memory
/// is given by the caller; passes allocate, look up and wait for nothing.
///
/// An activation that a backward or another stage reads lies in the minibatch's arena; every other
/// one, all activation gradients and workspaces share one scratch block, packed by lifetime.
class StageProgram {
 public:
  /// The model, the plan and the cut outlive the program.
  StageProgram(const Model& model, const ModelPlan& plan, const WeightLayout& weights,
               Backend& backend, const Cut& cut, int stage);

  int64_t batch() const { return plan_->batch(); }
  size_t arena_bytes() const { return arena_bytes_; }
  size_t scratch_bytes() const { return scratch_bytes_; }

  /// Tensors that come from outside: graph inputs (input stage) and forward messages.
  const std::vector<TensorId>& inputs() const { return inputs_; }
  /// Tensors that other stages read, and the bytes of each one's dense payload.
  struct Output {
    TensorId tensor = 0;
    size_t bytes = 0;
  };
  const std::vector<Output>& outputs() const { return outputs_; }

  /// The stage's losses, and where each one's [batch, kLossColumns] lie in the arena.
  struct Loss {
    int layer = 0;
    size_t values = 0;
  };
  const std::vector<Loss>& losses() const { return losses_; }

  void Forward(const StageMemory& memory, StageObserver& observer);
  /// Gradients of the parameters overwrite memory.weight_gradients.
  void Backward(const StageMemory& memory, StageObserver& observer);

 private:
  enum class Base : uint8_t { kNone, kInput, kOutput, kArena, kScratch, kReceived, kSent };
  struct Place {
    Base base = Base::kNone;
    size_t offset = 0;  // bytes, or an index for inputs and messages
  };
  // Sums what the consumers of a tensor give for it, the last one first.
  struct Accumulator {
    TensorId tensor = 0;
    Place place;
    int sent = -1;  // index of the gradient message that it fills, or -1
  };
  struct Fold {  // adds a received message to an accumulator
    int accumulator = 0, message = 0;
    bool first = false;
    Place temporary;  // of a message in an inner layout that is not the first
  };
  struct Target {  // where BackwardData writes the gradient of one input
    int accumulator = -1;
    bool first = false;
    Place temporary;  // when not first
    int into = -1;    // a later input of the step that reads the same tensor and is added first
  };
  struct Step {
    int layer = 0;
    Op* op = nullptr;
    std::vector<Place> x;
    Place y, saved, forward_workspace, backward_workspace;
    std::vector<size_t> params, state;  // offsets in their blocks
    bool runs_backward = false, wants_data = false;
    int dy = -1;  // accumulator
    std::vector<Fold> folds;
    std::vector<Target> targets;  // one an input
    std::vector<int> completed;   // accumulators that are messages, complete after this step
    // Pointer tables of one call, taken once.
    std::vector<const void*> x_now, params_now;
    std::vector<void*> dx_now, dparams_now, state_now;
  };
  struct Copy {  // dense input → inner layout, or input → payload of an output
    Place from, to;
    TensorId tensor = 0;
  };

  void PlaceValues(const Cut& cut);
  void PlaceForwardScratch(const std::vector<int>& last_reader, const std::vector<bool>& kept);
  void PlanGradients(const Cut& cut);
  void PlanContributions(TensorId tensor, const Cut& cut);
  void PlaceBackwardScratch();
  Place KeepInArena(size_t bytes);
  int LocalStep(int layer) const { return layer < 0 ? -1 : local_step_[layer]; }
  OpArgs Bind(Step& step, const StageMemory& memory) const;
  std::byte* At(const Place& place, const StageMemory& memory) const;
  void AddTargets(const Step& step, const StageMemory& memory);
  void FoldMessage(const Fold& fold, const StageMemory& memory);
  void Complete(const Accumulator& accumulator, const StageMemory& memory, StageObserver& observer);

  const Model* model_;
  const ModelPlan* plan_;
  Backend* backend_;
  int stage_;
  std::vector<Step> steps_;
  std::vector<int> local_step_;  // a layer's step here, or -1
  std::vector<TensorId> inputs_;
  std::vector<Place> value_;  // a tensor's, in its inner layout
  std::vector<Output> outputs_;
  std::vector<std::vector<int>> outputs_of_step_;
  std::vector<Copy> imports_, forwards_, exports_;  // exports_: one an output, or none (base kNone)
  std::vector<Loss> losses_;
  std::vector<Accumulator> accumulators_;
  std::vector<int> incoming_, outgoing_;  // gradient messages
  std::vector<BorderMessage> messages_;
  size_t arena_bytes_ = 0, scratch_bytes_ = 0;
};

}  // namespace pd
