#include "profile/stage_runner.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace pd {
namespace {

Cut CutAround(const Model& model, int begin, int end) {
  std::vector<std::vector<std::string>> stages;
  const auto add = [&](int from, int to) {
    if (from == to) return;
    stages.emplace_back();
    for (int l = from; l < to; ++l) stages.back().push_back(model.layers()[l].layer->name());
  };
  add(0, begin);
  add(begin, end);
  add(end, model.num_layers());
  return MakeCut(model, stages);
}

std::vector<TensorId> TensorsOf(const Cut& cut, const std::vector<int>& messages) {
  std::vector<TensorId> tensors;
  for (const int m : messages) tensors.push_back(cut.messages[m].tensor);
  return tensors;
}

// Random numbers of one tensor: uniform in [0, 1).
template <typename T, typename Function>
std::vector<T> Generate(size_t count, uint64_t seed, uint64_t stream, Function value) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(value(ToUniform(Philox(seed, stream, i >> 2)[i & 3])));
  }
  return values;
}

template <typename T>
Buffer ToBackend(Backend& backend, const std::vector<T>& values, DType dtype) {
  const Layout layout = DenseLayout({static_cast<int64_t>(values.size())}, dtype);
  Buffer buffer = backend.Allocate(layout.bytes);
  backend.FromHost(layout, values.data(), buffer.data());
  return buffer;
}

template <typename Function>
Buffer RandomReals(Backend& backend, size_t count, uint64_t seed, uint64_t stream, Function value) {
  if (backend.dtype() == DType::kF64) {
    return ToBackend(backend, Generate<double>(count, seed, stream, value), DType::kF64);
  }
  return ToBackend(backend, Generate<float>(count, seed, stream, value), DType::kF32);
}

}  // namespace

StageRunner::StageRunner(const Model& model, const ModelPlan& plan, Backend& backend, int begin,
                         int end)
    : model_(model),
      plan_(plan),
      backend_(backend),
      begin_(begin),
      end_(end),
      cut_(CutAround(model, begin, end)),
      stage_(begin == 0 ? 0 : 1),
      weights_(model, plan, cut_.layers[stage_]),
      program_(model, plan, weights_, backend, cut_, stage_),
      received_(TensorsOf(cut_, cut_.Incoming(stage_, true))),
      sent_(TensorsOf(cut_, cut_.Outgoing(stage_, true))) {}

size_t StageRunner::DenseBytes(TensorId tensor) const {
  const Layout& layout = plan_.layout(tensor);
  return static_cast<size_t>(Elements(layout.dims)) * SizeOf(layout.dtype);
}

size_t StageRunner::memory_bytes() const {
  size_t largest = 0;  // what is made on the host before the backend has it
  size_t messages = 0;
  for (const auto* tensors : {&program_.inputs(), &received_, &sent_}) {
    for (const TensorId t : *tensors) {
      messages += DenseBytes(t);
      largest = std::max(largest, DenseBytes(t));
    }
  }
  for (const StageProgram::Output& output : program_.outputs()) messages += output.bytes;
  for (const WeightLayout::Entry& entry : weights_.params()) {
    largest = std::max(largest, entry.layout.bytes);
  }
  return 4 * weights_.params_bytes() + weights_.state_bytes() + program_.arena_bytes() +
         program_.scratch_bytes() + messages + largest;
}

bool StageRunner::has_params(int layer) const {
  const WeightLayout::Range range = weights_.range(static_cast<size_t>(layer - begin_));
  return range.begin != range.end;
}

// Of an i32 tensor: that of the graph input whose values it holds.
int64_t StageRunner::LimitOf(TensorId tensor) const {
  while (model_.ProducerOf(tensor) >= 0) {
    tensor = model_.layers()[model_.ProducerOf(tensor)].inputs.at(0);
  }
  return model_.inputs()[tensor].limit;
}

Buffer StageRunner::MakeInput(TensorId tensor, uint64_t seed) const {
  const Layout& layout = plan_.layout(tensor);
  const auto count = static_cast<size_t>(Elements(layout.dims));
  const auto stream = static_cast<uint64_t>(tensor);
  if (layout.dtype != DType::kI32) {
    return RandomReals(backend_, count, seed, stream, [](float u) { return u; });
  }
  const int64_t limit = LimitOf(tensor);
  const auto value = [limit](float u) {
    return std::min(static_cast<int64_t>(static_cast<double>(u) * static_cast<double>(limit)),
                    limit - 1);
  };
  return ToBackend(backend_, Generate<int32_t>(count, seed, stream, value), DType::kI32);
}

Buffer StageRunner::MakeGradient(TensorId tensor, uint64_t seed) const {
  const Layout& layout = plan_.layout(tensor);
  const float scale = 1.0F / static_cast<float>(plan_.batch());
  return RandomReals(backend_, static_cast<size_t>(Elements(layout.dims)), ~seed,
                     static_cast<uint64_t>(tensor),
                     [scale](float u) { return (u - 0.5F) * scale; });
}

void StageRunner::Allocate(uint64_t seed) {
  for (Buffer& version : versions_) version = backend_.Allocate(weights_.params_bytes());
  gradients_ = backend_.Allocate(weights_.params_bytes());
  momentum_ = backend_.Allocate(weights_.params_bytes());
  state_ = backend_.Allocate(weights_.state_bytes());
  arena_ = backend_.Allocate(program_.arena_bytes());
  scratch_ = backend_.Allocate(program_.scratch_bytes());
  weights_.Initialise(model_, backend_, seed, versions_[0].data(), state_.data());
  for (const TensorId t : program_.inputs()) {
    messages_.push_back(MakeInput(t, seed));
    input_data_.push_back(messages_.back().data());
  }
  for (const StageProgram::Output& output : program_.outputs()) {
    messages_.push_back(backend_.Allocate(output.bytes));
    output_data_.push_back(messages_.back().data());
  }
  for (const TensorId t : received_) {
    messages_.push_back(MakeGradient(t, seed));
    received_data_.push_back(messages_.back().data());
  }
  for (const TensorId t : sent_) {
    messages_.push_back(backend_.Allocate(DenseBytes(t)));
    sent_data_.push_back(messages_.back().data());
  }
}

StageMemory StageRunner::Memory() const {
  return {.arena = arena_.data(),
          .scratch = scratch_.data(),
          .inputs = input_data_,
          .outputs = output_data_,
          .gradients_received = received_data_,
          .gradients_sent = sent_data_,
          .weights = versions_[step_ % 2].data(),
          .weight_gradients = gradients_.data(),
          .state = state_.data(),
          .minibatch = step_,
          .training = true};
}

void StageRunner::Forward(StageObserver& observer) { program_.Forward(Memory(), observer); }
void StageRunner::Backward(StageObserver& observer) { program_.Backward(Memory(), observer); }

void StageRunner::Update(int layer) {
  const WeightLayout::Range range = weights_.range(static_cast<size_t>(layer - begin_));
  backend_.Sgd({.w = versions_[step_ % 2].data() + range.begin,
                .g = gradients_.data() + range.begin,
                .m = momentum_.data() + range.begin,
                .w_out = versions_[(step_ + 1) % 2].data() + range.begin,
                .count = (range.end - range.begin) / SizeOf(backend_.dtype()),
                .lr = 0,
                .momentum = 0.9,
                .weight_decay = 0});
}

}  // namespace pd
