#include "pipeline/stage_setup.h"

#include <algorithm>

#include "base/error.h"
#include "pipeline/all_reduce.h"
#include "pipeline/staging.h"
#include "stage/packer.h"

namespace pd {
namespace {

constexpr size_t kMinBucketBytes = 256 << 10;

}  // namespace

StageSetup::StageSetup(const PipelineSpec& spec, Backend& backend, int stage)
    : model_(spec.model),
      cut_(spec.cut),
      stage_(stage),
      in_flight_(spec.shape.stages[stage].in_flight),
      input_slots_(spec.shape.stages[stage].in_flight + (stage == 0 ? 0 : kReceiveAhead)),
      on_device_(backend.on_device()),
      // With one minibatch in flight all is still there when its backward comes.
      recomputes_(!spec.recompute.empty() && spec.recompute[stage] && in_flight_ > 1),
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
  return kHeaderBytes + Align(static_cast<size_t>(Elements(layout.dims)) * SizeOf(layout.dtype));
}

std::vector<size_t> StageSetup::MessageBytes(const std::vector<int>& messages) const {
  std::vector<size_t> bytes;
  for (const int m : messages) {
    bytes.push_back(MessageBytes(cut_->messages[static_cast<size_t>(m)].tensor));
  }
  return bytes;
}

std::vector<size_t> StageSetup::InputBytes() const {
  std::vector<size_t> bytes;
  for (const TensorId t : full().inputs()) bytes.push_back(MessageBytes(t));
  return bytes;
}

std::vector<size_t> StageSetup::OutputBytes() const {
  std::vector<size_t> bytes;
  for (const StageProgram::Output& o : full().outputs()) bytes.push_back(MessageBytes(o.tensor));
  return bytes;
}

size_t StageSetup::loss_bytes() const {
  return Align(static_cast<size_t>(full().batch()) * kLossColumns * sizeof(float));
}

WorkerMemory StageSetup::Memory(const PipelineSpec& spec) const {
  const auto in_flight = static_cast<size_t>(in_flight_);
  const auto replicas = static_cast<size_t>(spec.shape.stages[stage_].replicas);
  const size_t weights = weights_->params_bytes();
  const size_t state = weights_->state_bytes();
  WorkerMemory memory;
  memory.on_device = on_device_;
  memory.weights = in_flight * weights + (recomputes_ ? 2 : 1) * state;
  memory.gradients = weights;
  memory.optimizer = spec.momentum != 0 ? weights : 0;
  memory.activations = static_cast<size_t>(arenas()) * arena_bytes();
  memory.scratch = scratch_bytes();
  memory.staging = AllReducer::StagingBytes(replicas, largest_sum_bytes()) +
                   full().losses().size() * kMetricsAhead * loss_bytes();
  if (on_device_ && replicas > 1) memory.staging += weights + state;
  const auto add = [&](size_t slots, const std::vector<size_t>& bytes, bool direct) {
    memory.messages += slots * Staging::StagingBytes(bytes, false);
    if (on_device_) memory.staging += slots * Staging::StagingBytes(bytes, direct);
  };
  const bool direct = spec.direct_messages;
  add(static_cast<size_t>(input_slots_), InputBytes(), direct && stage_ > 0);
  add(in_flight, OutputBytes(), direct);
  add(kGradientBuffers, MessageBytes(gradients_in_), direct);
  add(kGradientBuffers, MessageBytes(gradients_out_), direct);
  return memory;
}

}  // namespace pd
