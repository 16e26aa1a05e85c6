// step_bench MODEL: a whole training step against the kernels that it is made of, in one run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <random>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "kernel_bench.h"
#include "stage/program.h"

namespace pd::bench {
namespace {

/// A model on one worker, stepping on random samples.
class WholeStep {
 public:
  WholeStep(const Model& model, Backend& backend, int64_t batch)
      : model_(model),
        backend_(backend),
        plan_(model, backend, batch, 1),
        cut_(MakeWholeCut(model)),
        layout_(model, plan_, cut_.layers[0]),
        program_(model, plan_, layout_, backend, cut_, 0) {
    for (Buffer& weights : weights_) weights = backend.Allocate(layout_.params_bytes());
    gradients_ = backend.Allocate(layout_.params_bytes());
    momentum_ = backend.Allocate(layout_.params_bytes());
    state_ = backend.Allocate(layout_.state_bytes());
    arena_ = backend.Allocate(program_.arena_bytes());
    scratch_ = backend.Allocate(program_.scratch_bytes());
    layout_.Initialise(model, backend, 1, weights_[0].data(), state_.data());
    std::mt19937 engine(1);
    for (const TensorId input : program_.inputs()) {
      const TensorSpec& spec = model.spec(input);
      inputs_.push_back(backend.Allocate(spec.Bytes(batch)));
      input_data_.push_back(inputs_.back().data());
      if (spec.dtype == DType::kI32) {
        auto* labels = reinterpret_cast<int32_t*>(inputs_.back().data());
        const auto classes = static_cast<unsigned>(std::max<int64_t>(1, model.classes()));
        for (int64_t i = 0; i < batch * Elements(spec.shape); ++i) {
          labels[i] = static_cast<int32_t>(engine() % classes);
        }
      } else {
        auto* values = reinterpret_cast<float*>(inputs_.back().data());
        for (int64_t i = 0; i < batch * Elements(spec.shape); ++i) {
          values[i] = static_cast<float>(engine() >> 8) * 0x1p-24F;
        }
      }
    }
  }

  void Run() {
    StageObserver observer;
    const StageMemory memory = {.arena = arena_.data(),
                                .scratch = scratch_.data(),
                                .inputs = input_data_,
                                .gradients_received = {},
                                .gradients_sent = {},
                                .weights = weights_[0].data(),
                                .weight_gradients = gradients_.data(),
                                .state = state_.data(),
                                .minibatch = minibatch_++,
                                .training = true};
    program_.Forward(memory, observer);
    program_.Backward(memory, observer);
    Update();
  }

  void Update() {
    backend_.Sgd({.w = weights_[0].data(),
                  .g = gradients_.data(),
                  .m = momentum_.data(),
                  .w_out = weights_[1].data(),
                  .count = layout_.params_bytes() / sizeof(float),
                  .lr = 0.005,
                  .momentum = 0.9,
                  .weight_decay = 0});
    std::swap(weights_[0], weights_[1]);
  }

  /// Mean over the samples of the last step's first loss.
  double Loss() const {
    const auto* values =
        reinterpret_cast<const float*>(arena_.data() + program_.losses().at(0).values);
    double sum = 0;
    for (int64_t i = 0; i < plan_.batch(); ++i) sum += static_cast<double>(values[i]);
    return sum / static_cast<double>(plan_.batch());
  }

 private:
  const Model& model_;
  Backend& backend_;
  ModelPlan plan_;
  Cut cut_;
  WeightLayout layout_;
  StageProgram program_;
  Buffer weights_[2], gradients_, momentum_, state_, arena_, scratch_;
  std::vector<Buffer> inputs_;
  std::vector<const std::byte*> input_data_;
  uint64_t minibatch_ = 0;
};

void PrintRow(const char* layer, const char* what, double median, double least) {
  std::printf("%-20s %-18s %10.4f %10.4f\n", layer, what, median, least);
}

void Print(const std::vector<KernelTimer>& timers, const std::vector<double>& updates,
           const std::vector<double>& steps) {
  std::printf("%-20s %-18s %10s %10s\n", "layer", "kernel", "median ms", "least ms");
  double median = 0;
  double least = 0;
  for (const KernelTimer& timer : timers) {
    PrintRow(timer.layer.c_str(), timer.what.c_str(), timer.MedianMs(), timer.LeastMs());
    median += timer.MedianMs();
    least += timer.LeastMs();
  }
  PrintRow("all", "kernels", median, least);
  PrintRow("all", "update", Median(updates), Least(updates));
  median += Median(updates);
  least += Least(updates);
  PrintRow("all", "step", Median(steps), Least(steps));
  std::printf("step / (kernels + update): %.3f of medians, %.3f of least times\n",
              Median(steps) / median, Least(steps) / least);
}

void Bench(const std::string& path, int64_t batch, int rounds) {
  const auto backend = MakeBackend("cpu", 1);
  const Model model = Model::Parse(JsonView::Parse(ReadFile(path), path));
  WholeStep step(model, *backend, batch);
  std::vector<KernelTimer> timers = MakeKernelTimers(model, *backend, batch);
  step.Run();
  const double first_loss = step.Loss();
  for (int i = 0; i < 12; ++i) step.Run();
  // The same samples again and again: a step that computes what it should learns them.
  PD_CHECK(step.Loss() < first_loss, "the loss went from {} to {}", first_loss, step.Loss());

  // All in turn, so that a slow moment of the machine meets all alike.
  std::vector<double> updates, steps;
  for (int round = 0; round < rounds; ++round) {
    for (KernelTimer& timer : timers) timer.Round();
    const int64_t begin = NowNs();
    step.Run();
    const int64_t middle = NowNs();
    step.Update();
    updates.push_back(NsToMs(NowNs() - middle));
    steps.push_back(NsToMs(middle - begin));
  }
  std::printf("%s, minibatch of %lld, 1 thread, %d rounds; %s, %s\n", path.c_str(),
              static_cast<long long>(batch), rounds, backend->name().c_str(),
              backend->libraries().c_str());
  Print(timers, updates, steps);
}

}  // namespace
}  // namespace pd::bench

int main(int argc, char** argv) {
  CLI::App app("Times a training step, and the kernels of its layers alone");
  std::string model;
  int64_t batch = 64;
  int rounds = 31;
  app.add_option("MODEL", model, "A model/1 file")->required();
  app.add_option("-b", batch, "Minibatch size")->check(CLI::Range(1, 4096));
  app.add_option("--rounds", rounds, "Of which the medians are taken")->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);
  try {
    pd::bench::Bench(model, batch, rounds);
  } catch (const pd::Error& error) {
    std::fprintf(stderr, "step_bench: %s\n", error.what());
    return error.code() == pd::ErrorCode::kInvalidInput ? 2 : 1;
  }
  return 0;
}
