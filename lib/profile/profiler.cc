#include "profile/profiler.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/units.h"
#include "profile/stage_runner.h"
#include "profile/statistics.h"

namespace pd {
namespace {

// Rounded to whole nanoseconds, a time has a short decimal form.
double ToMs(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// Times stretches of a step: on the host by the clock, on a device by marks around what is queued,
// which are read when the step is done.
class StepTimer {
 public:
  StepTimer(Backend& backend, const std::function<int64_t()>& clock)
      : backend_(backend), clock_(clock) {}

  void Begin() {
    if (!backend_.on_device()) {
      begin_ns_ = clock_();
      return;
    }
    if (used_ == stretches_.size()) {
      stretches_.push_back({backend_.MakeMark(), backend_.MakeMark(), nullptr});
    }
    backend_.Record(Queue::kCompute, *stretches_[used_].begin, "time a layer");
  }
  void End(std::vector<int64_t>& samples) {
    if (!backend_.on_device()) {
      samples.push_back(clock_() - begin_ns_);
      return;
    }
    Stretch& stretch = stretches_[used_++];
    backend_.Record(Queue::kCompute, *stretch.end, "time a layer");
    stretch.samples = &samples;
  }
  void EndStep() {
    if (used_ == 0) return;
    backend_.WaitOnHost(*stretches_[used_ - 1].end, "time a step");
    for (size_t i = 0; i < used_; ++i) {
      const double ms = backend_.ElapsedMs(*stretches_[i].begin, *stretches_[i].end);
      stretches_[i].samples->push_back(std::llround(ms * 1e6));
    }
    used_ = 0;
  }

 private:
  struct Stretch {
    std::unique_ptr<Mark> begin, end;
    std::vector<int64_t>* samples = nullptr;
  };
  Backend& backend_;
  const std::function<int64_t()>& clock_;
  int64_t begin_ns_ = 0;
  std::vector<Stretch> stretches_;
  size_t used_ = 0;
};

// Times what happens between LayerBegins and LayerEnds.
class LayerTimer final : public StageObserver {
 public:
  LayerTimer(StepTimer& timer, std::vector<std::vector<int64_t>>& samples)
      : timer_(timer), samples_(samples) {}
  void LayerBegins(int /*layer*/) override { timer_.Begin(); }
  void LayerEnds(int layer) override { timer_.End(samples_[static_cast<size_t>(layer)]); }

 private:
  StepTimer& timer_;
  std::vector<std::vector<int64_t>>& samples_;  // of each layer
};

class Profiler {
 public:
  Profiler(const Model& model, Backend& backend, const ProfileOptions& options)
      : model_(model),
        backend_(backend),
        options_(options),
        plan_(model, backend, options.batch_size, options.seed),
        timer_(backend, options.clock) {
    for (auto* samples : {&forward_, &backward_, &update_}) {
      samples->resize(static_cast<size_t>(model.num_layers()));
      for (auto& each : *samples) {
        each.reserve(static_cast<size_t>(options.minibatches + options.warmup));
      }
    }
  }

  ProfileResult Run() {
    Split(0, model_.num_layers());
    for (size_t p = 0; p < result_.pieces.size(); ++p) MeasurePiece(p);
    FillProfile();
    return std::move(result_);
  }

 private:
  // Halves until each piece fits.
  void Split(int begin, int end) {
    const auto need =
        static_cast<int64_t>(StageRunner(model_, plan_, backend_, begin, end).memory_bytes());
    if (need <= options_.memory_bytes) {
      result_.pieces.push_back({begin, end});
      result_.memory_bytes = std::max(result_.memory_bytes, need);
      return;
    }
    PD_REQUIRE(end - begin > 1,
               "layer \"{}\" alone needs {} at batch size {}, expected at most {}: a smaller batch "
               "needs less",
               model_.layers()[begin].layer->name(), FormatBytes(static_cast<double>(need)),
               options_.batch_size, FormatBytes(static_cast<double>(options_.memory_bytes)));
    const int middle = begin + (end - begin) / 2;
    Split(begin, middle);
    Split(middle, end);
  }

  void MeasurePiece(size_t p) {
    const ProfileResult::Piece piece = result_.pieces[p];
    StageRunner runner(model_, plan_, backend_, piece.begin, piece.end);
    runner.Allocate(options_.seed);
    std::vector<int64_t> untimed;
    const int64_t steps = options_.warmup + options_.minibatches;
    for (int64_t step = 0; step < steps; ++step) {
      if (step == options_.warmup) {
        ForgetSamples(piece);
        untimed.clear();
      }
      TimedStep(runner);
      UntimedStep(runner, untimed);
      if (options_.progress) {
        options_.progress({step + 1, steps, p, result_.pieces.size()});
      }
    }
    result_.untimed_ms += ToMs(Median(untimed));
    result_.untimed_p90_ms += ToMs(Percentile90(untimed));
  }

  void ForgetSamples(ProfileResult::Piece piece) {
    for (int l = piece.begin; l < piece.end; ++l) {
      for (auto* samples : {&forward_, &backward_, &update_}) (*samples)[l].clear();
    }
  }

  void TimedStep(StageRunner& runner) {
    LayerTimer forward(timer_, forward_), backward(timer_, backward_), update(timer_, update_);
    runner.Forward(forward);
    runner.Backward(backward);
    for (int l = runner.end() - 1; l >= runner.begin(); --l) {
      if (!runner.has_params(l)) continue;
      update.LayerBegins(l);
      runner.Update(l);
      update.LayerEnds(l);
    }
    runner.EndStep();
    timer_.EndStep();
  }

  void UntimedStep(StageRunner& runner, std::vector<int64_t>& times) {
    StageObserver nobody;
    const int64_t cpu_begin = options_.cpu_clock();
    timer_.Begin();
    runner.Forward(nobody);
    runner.Backward(nobody);
    for (int l = runner.end() - 1; l >= runner.begin(); --l) {
      if (runner.has_params(l)) runner.Update(l);
    }
    runner.EndStep();
    timer_.End(times);
    timer_.EndStep();
    if (backend_.on_device()) return;  // it has the device to itself, or nobody can tell
    wall_ns_ += times.back();
    cpu_ns_ += options_.cpu_clock() - cpu_begin;
  }

  void FillProfile() {
    Profile& profile = result_.profile;
    profile.batch_size = options_.batch_size;
    profile.model = model_.json();
    profile.minibatches = options_.minibatches;
    profile.device = DeviceInfo{std::string(backend_.kind()), backend_.name(), backend_.threads(),
                                backend_.libraries()};
    if (result_.pieces.size() == 1) profile.whole_ms = result_.untimed_ms;
    result_.warmup = options_.warmup;
    if (wall_ns_ > 0) {
      const double computing = static_cast<double>(cpu_ns_) / static_cast<double>(wall_ns_);
      result_.lost_share = std::max(0.0, 1 - computing);
    }
    for (int l = 0; l < model_.num_layers(); ++l) {
      profile.layers.push_back(CostOf(l));
      result_.layers_ms += profile.layers.back().compute_ms();
    }
  }

  LayerCost CostOf(int l) const {
    const Model::Node& node = model_.layers()[l];
    const OpInfo& info = plan_.op(l).info();
    LayerCost cost;
    cost.name = node.layer->name();
    for (const TensorId input : node.inputs) cost.inputs.push_back(model_.tensor_name(input));
    cost.forward_ms = ToMs(Median(forward_[l]));
    cost.forward_p90_ms = ToMs(Percentile90(forward_[l]));
    // Without samples nothing is done: no gradient to compute, or no parameters.
    cost.backward_ms = backward_[l].empty() ? 0 : ToMs(Median(backward_[l]));
    cost.backward_p90_ms = backward_[l].empty() ? 0 : ToMs(Percentile90(backward_[l]));
    cost.update_ms = update_[l].empty() ? 0 : ToMs(Median(update_[l]));
    cost.activation_bytes = Elements(info.y.dims) * static_cast<int64_t>(SizeOf(info.y.dtype));
    for (const ParamSpec& param : node.layer->params()) {
      if (!param.trainable) continue;
      cost.parameter_bytes +=
          Elements(param.shape) * static_cast<int64_t>(SizeOf(backend_.dtype()));
    }
    int64_t stored = 0;
    for (const Layout& param : info.params) stored += static_cast<int64_t>(param.bytes);
    cost.stored_parameter_bytes = stored;
    cost.stash_bytes =
        static_cast<int64_t>(info.saved_bytes + (OutputIsKept(l) ? info.y.bytes : 0));
    cost.workspace_bytes = static_cast<int64_t>(info.workspace_bytes);
    const Layout& layout = plan_.layout(model_.OutputOf(l));
    if (!layout.dense()) cost.copy_bytes = static_cast<int64_t>(layout.bytes);
    return cost;
  }

  // Whether some backward reads the output of layer `l`: its own or a consumer's.
  bool OutputIsKept(int l) const {
    if (plan_.op(l).info().backward_reads_y) return true;
    const std::vector<int>& consumers = model_.consumers(model_.OutputOf(l));
    return std::any_of(consumers.begin(), consumers.end(),
                       [&](int c) { return plan_.op(c).info().backward_reads_x; });
  }

  const Model& model_;
  Backend& backend_;
  const ProfileOptions& options_;
  ModelPlan plan_;
  StepTimer timer_;
  std::vector<std::vector<int64_t>> forward_, backward_, update_;  // nanoseconds, of each layer
  int64_t wall_ns_ = 0, cpu_ns_ = 0;                               // of all untimed passes
  ProfileResult result_;
};

}  // namespace

ProfileResult MeasureProfile(const Model& model, Backend& backend, const ProfileOptions& options) {
  PD_CHECK(options.batch_size >= 1 && options.minibatches >= 1 && options.warmup >= 0,
           "{} minibatches of {} after {}", options.minibatches, options.batch_size,
           options.warmup);
  return Profiler(model, backend, options).Run();
}

}  // namespace pd
