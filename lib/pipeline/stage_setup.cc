#include "pipeline/stage_setup.h"

#include <algorithm>

#include "base/error.h"
#include "pipeline/all_reduce.h"
#include "stage/packer.h"

namespace pd {
namespace {

constexpr size_t kMinBucketBytes = 256 << 10;

}  // namespace

StageSetup::StageSetup(const PipelineSpec& spec, Backend& backend, int stage)
    : model_(spec.model),
      stage_(stage),
      input_slots_(spec.shape.stages[stage].in_flight + (stage == 0 ? 0 : kReceiveAhead)),
      gradients_in_(spec.cut->Incoming(stage, true)),
      gradients_out_(spec.cut->Outgoing(stage, true)),
      outputs_(spec.cut->Outgoing(stage, false)) {
  plans_.push_back(std::make_unique<ModelPlan>(*model_, backend, spec.batch_size, spec.seed));
  weights_ = std::make_unique<WeightLayout>(*model_, *plans_[0], spec.cut->layers[stage]);
  for (const int64_t batch : spec.short_batches) {
    plans_.push_back(
        std::make_unique<ModelPlan>(*model_, backend, batch, spec.seed, plans_[0].get()));
  }
  for (const auto& plan : plans_) {
    programs_.push_back(
        std::make_unique<StageProgram>(*model_, *plan, *weights_, backend, *spec.cut, stage));
  }
  MakeBuckets(static_cast<int>(spec.cut->layers[stage].size()));
}

void StageSetup::MakeBuckets(int layers) {
  bool open = false;
  for (int i = layers - 1; i >= 0; --i) {
    const WeightLayout::Range range = weights_->range(static_cast<size_t>(i));
    if (range.begin == range.end) continue;
    if (!open) buckets_.push_back({.begin = range.begin, .end = range.end, .first_layer = i});
    WeightBucket& bucket = buckets_.back();
    bucket.begin = range.begin;
    bucket.first_layer = i;
    open = bucket.end - bucket.begin < kMinBucketBytes;
  }
}

size_t StageSetup::largest_sum_bytes() const {
  size_t bytes = weights_->state_bytes();
  for (const WeightBucket& bucket : buckets_) bytes = std::max(bytes, bucket.end - bucket.begin);
  return bytes;
}

StageProgram& StageSetup::program(int64_t samples) const {
  for (const auto& program : programs_) {
    if (program->batch() == samples) return *program;
  }
  Throw(ErrorCode::kInternal, "no program for a minibatch of {} samples", samples);
}

size_t StageSetup::arena_bytes() const {
  size_t bytes = 0;
  for (const auto& program : programs_) bytes = std::max(bytes, program->arena_bytes());
  return bytes;
}

size_t StageSetup::scratch_bytes() const {
  size_t bytes = 0;
  for (const auto& program : programs_) bytes = std::max(bytes, program->scratch_bytes());
  return bytes;
}

size_t StageSetup::MessageBytes(TensorId tensor) const {
  const Layout& layout = plans_[0]->layout(tensor);
  return StageProgram::kHeaderBytes +
         Align(static_cast<size_t>(Elements(layout.dims)) * SizeOf(layout.dtype));
}

WorkerMemory StageSetup::Memory(const PipelineSpec& spec) const {
  const auto in_flight = static_cast<size_t>(spec.shape.stages[stage_].in_flight);
  const auto replicas = static_cast<size_t>(spec.shape.stages[stage_].replicas);
  const size_t weights = weights_->params_bytes();
  WorkerMemory memory;
  memory.weights = in_flight * weights + weights_->state_bytes();
  memory.gradients = weights + AllReducer::StagingBytes(replicas, largest_sum_bytes());
  memory.optimizer = spec.momentum != 0 ? weights : 0;
  memory.activations = in_flight * arena_bytes();
  memory.scratch = scratch_bytes();
  for (const TensorId t : full().inputs()) {
    memory.messages += static_cast<size_t>(input_slots_) * MessageBytes(t);
  }
  for (const auto& list : {gradients_in_, gradients_out_}) {
    for (const int m : list)
      memory.messages += kGradientBuffers * MessageBytes(spec.cut->messages[m].tensor);
  }
  return memory;
}

}  // namespace pd
