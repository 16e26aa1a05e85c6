#include "timing.h"

#include <algorithm>

#include "base/error.h"
#include "stage/model_plan.h"

namespace pd::bench {
namespace {

/// An operation with its memory.
struct OpCall {
  std::unique_ptr<Op> op;
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<const void*> x, params;
  std::vector<void*> dx, dparams, state;
  OpArgs args;

  OpCall(Backend& backend, std::unique_ptr<Op> planned, const OpRequest& request)
      : op(std::move(planned)) {
    op->Prepare();
    const auto memory = [&](size_t bytes, DType dtype = DType::kF32) {
      buffers.push_back(MakeMemory(backend, bytes, dtype));
      return buffers.back()->data();
    };
    const OpInfo& info = op->info();
    for (size_t i = 0; i < request.x.size(); ++i) {
      x.push_back(memory(request.x[i].bytes, request.x[i].dtype));
      dx.push_back(request.wants_dx[i] ? memory(request.x[i].bytes) : nullptr);
    }
    for (const Layout& param : info.params) {
      params.push_back(memory(param.bytes));
      dparams.push_back(memory(param.bytes));
      state.push_back(memory(param.bytes));
    }
    args = {.x = x,
            .y = memory(info.y.bytes),
            .dy = memory(info.y.bytes),
            .dx = dx,
            .params = params,
            .dparams = dparams,
            .state = state,
            .saved = memory(info.saved_bytes),
            .workspace = memory(info.workspace_bytes),
            .minibatch = 0,
            .training = true};
  }
};

}  // namespace

void KernelTimer::Round(Stopwatch* stopwatch) {
  for (Candidate& candidate : candidates) {
    candidate.run();
    stopwatch->Start();
    candidate.run();
    candidate.times_ms.push_back(stopwatch->StopMs());
  }
}

double KernelTimer::MedianMs() const {
  double best = Median(candidates.at(0).times_ms);
  for (const Candidate& candidate : candidates) best = std::min(best, Median(candidate.times_ms));
  return best;
}

double KernelTimer::LeastMs() const {
  double best = Least(candidates.at(0).times_ms);
  for (const Candidate& candidate : candidates) best = std::min(best, Least(candidate.times_ms));
  return best;
}

double Median(std::vector<double> values) {
  PD_CHECK(!values.empty(), "no times");
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Least(const std::vector<double>& values) {
  PD_CHECK(!values.empty(), "no times");
  return *std::min_element(values.begin(), values.end());
}

KernelTimer& TimerOf(const std::string& layer, const std::string& what,
                     std::vector<KernelTimer>* timers) {
  for (KernelTimer& timer : *timers) {
    if (timer.layer == layer && timer.what == what) return timer;
  }
  timers->push_back({.layer = layer, .what = what, .candidates = {}});
  return timers->back();
}

std::shared_ptr<Buffer> MakeMemory(Backend& backend, size_t bytes, DType dtype) {
  auto buffer = std::make_shared<Buffer>(backend.Allocate(std::max<size_t>(bytes, 64)));
  if (dtype != DType::kF32 || bytes < sizeof(float)) return buffer;  // zeros
  std::vector<float> values(bytes / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 2654435761U % 201) - 100) * 0.01F;
  }
  const auto count = static_cast<int64_t>(values.size());
  backend.FromHost(DenseLayout({count}, DType::kF32), values.data(), buffer->data());
  return buffer;
}

void AddOpTimers(Backend& backend, std::unique_ptr<Op> op, const OpRequest& request,
                 const std::string& layer, std::vector<KernelTimer>* timers) {
  auto call = std::make_shared<OpCall>(backend, std::move(op), request);
  const auto add = [&](const char* what, std::function<void()> run) {
    TimerOf(layer, what, timers).candidates.push_back({.run = std::move(run), .times_ms = {}});
  };
  add("forward", [call] { call->op->Forward(call->args); });
  if (std::count(request.wants_dx.begin(), request.wants_dx.end(), true) > 0) {
    add("backward data", [call] { call->op->BackwardData(call->args); });
  }
  if (!call->params.empty()) {
    add("backward weights", [call] { call->op->BackwardWeights(call->args); });
  }
}

std::vector<KernelTimer> MakeOpTimers(const Model& model, Backend& backend, int64_t batch) {
  std::vector<KernelTimer> timers;
  const ModelPlan plan(model, backend, batch, 1);
  for (const Model::Node& node : model.layers()) {
    OpRequest request;
    for (const TensorId input : node.inputs) request.x.push_back(plan.layout(input));
    request.wants_dx = node.wants_dx;
    AddOpTimers(backend, node.layer->Plan(backend, request, 1), request, node.layer->name(),
                &timers);
  }
  return timers;
}

}  // namespace pd::bench
