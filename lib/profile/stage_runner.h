#pragma once

#include <cstdint>
#include <vector>

#include "stage/program.h"

namespace pd {

/// Consecutive layers of a model as one stage of a pipeline, alone on a worker: what other stages
/// would send is random data, what it would send stays here.
///
/// Planning takes little memory, so that memory_bytes() can be asked before Allocate() takes it.
class StageRunner {
 public:
  /// Layers [begin, end). Model, plan and backend outlive the runner.
  StageRunner(const Model& model, const ModelPlan& plan, Backend& backend, int begin, int end);
  StageRunner(const StageRunner&) = delete;
  StageRunner& operator=(const StageRunner&) = delete;

  /// What Allocate() takes at its peak.
  size_t memory_bytes() const;
  /// Initial weights, random inputs, i32 inputs below their limits and random gradients, all fixed
  /// by `seed`.
  void Allocate(uint64_t seed);

  int begin() const { return begin_; }
  int end() const { return end_; }
  bool has_params(int layer) const;

  // One step of training: Forward, Backward, Update for each layer, EndStep. None allocates.
  void Forward(StageObserver& observer);
  void Backward(StageObserver& observer);
  /// SGD with momentum, into the other one of two weight versions, as in a pipeline. The learning
  /// rate is 0: the same work, and values stay finite however many steps are made.
  void Update(int layer);
  void EndStep() { ++step_; }

 private:
  int64_t LimitOf(TensorId tensor) const;
  Buffer MakeInput(TensorId tensor, uint64_t seed) const;
  Buffer MakeGradient(TensorId tensor, uint64_t seed) const;
  size_t DenseBytes(TensorId tensor) const;
  StageMemory Memory() const;

  const Model& model_;
  const ModelPlan& plan_;
  Backend& backend_;
  int begin_, end_;
  Cut cut_;
  int stage_;
  WeightLayout weights_;
  StageProgram program_;
  std::vector<TensorId> received_, sent_;  // tensors of the gradient messages
  Buffer versions_[2], gradients_, momentum_, state_, arena_, scratch_;
  std::vector<Buffer> messages_;
  std::vector<const std::byte*> input_data_;
  std::vector<std::byte*> output_data_, received_data_, sent_data_;
  uint64_t step_ = 0;
};

}  // namespace pd
