// step_bench MODEL: a whole training step against the kernels that it is made of, in one run: on
// the cpu backend oneDNN's own (kernel_bench.h), on others the backend's operations alone.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "stage/program.h"
#include "timing.h"
#if PD_WITH_CPU
#include "kernel_bench.h"
#endif

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
      const Layout layout = DenseLayout({batch * Elements(spec.shape)}, spec.dtype);
      if (spec.dtype == DType::kI32) {
        const auto limit = static_cast<unsigned>(model.inputs()[input].limit);
        std::vector<int32_t> labels(layout.stored());
        for (int32_t& label : labels) label = static_cast<int32_t>(engine() % limit);
        backend.FromHost(layout, labels.data(), inputs_.back().data());
      } else {
        std::vector<float> values(layout.stored());
        for (float& value : values) value = static_cast<float>(engine() >> 8) * 0x1p-24F;
        backend.FromHost(layout, values.data(), inputs_.back().data());
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
    const Layout layout = DenseLayout({plan_.batch(), kLossColumns}, DType::kF32);
    std::vector<float> values(layout.stored());
    backend_.ToHost(layout, arena_.data() + program_.losses().at(0).values, values.data());
    double sum = 0;
    for (size_t i = kLossSum; i < values.size(); i += kLossColumns) {
      sum += static_cast<double>(values[i]);
    }
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

struct Row {
  std::string layer, what;
  double median_ms = 0, least_ms = 0;
};

struct Flags {
  std::string model, device = "cpu", json;
  int64_t batch = 64;
  int rounds = 31;
};

/// A row a kernel, then of all kernels, the update and the step.
std::vector<Row> Rows(const std::vector<KernelTimer>& timers, const std::vector<double>& updates,
                      const std::vector<double>& steps) {
  std::vector<Row> rows;
  Row all = {.layer = "all", .what = "kernels"};
  for (const KernelTimer& timer : timers) {
    rows.push_back({timer.layer, timer.what, timer.MedianMs(), timer.LeastMs()});
    all.median_ms += timer.MedianMs();
    all.least_ms += timer.LeastMs();
  }
  rows.push_back(all);
  rows.push_back({"all", "update", Median(updates), Least(updates)});
  rows.push_back({"all", "step", Median(steps), Least(steps)});
  return rows;
}

void Print(const std::vector<Row>& rows) {
  std::printf("%-20s %-18s %10s %10s\n", "layer", "kernel", "median ms", "least ms");
  for (const Row& row : rows) {
    std::printf("%-20s %-18s %10.4f %10.4f\n", row.layer.c_str(), row.what.c_str(), row.median_ms,
                row.least_ms);
  }
  const Row& step = rows.back();
  const Row& update = rows[rows.size() - 2];
  const Row& kernels = rows[rows.size() - 3];
  std::printf("step / (kernels + update): %.3f of medians, %.3f of least times\n",
              step.median_ms / (kernels.median_ms + update.median_ms),
              step.least_ms / (kernels.least_ms + update.least_ms));
}

void WriteJson(const Flags& flags, const Backend& backend, const std::vector<Row>& rows) {
  nlohmann::ordered_json json = {
      {"model", flags.model},     {"batch", flags.batch},
      {"device", backend.name()}, {"libraries", backend.libraries()},
      {"rounds", flags.rounds},   {"rows", nlohmann::ordered_json::array()}};
  for (const Row& row : rows) {
    json["rows"].push_back({{"layer", row.layer},
                            {"what", row.what},
                            {"median_ms", row.median_ms},
                            {"least_ms", row.least_ms}});
  }
  WriteFile(flags.json, json.dump(1) + "\n");
}

std::vector<KernelTimer> MakeTimers(const Model& model, Backend& backend, int64_t batch) {
#if PD_WITH_CPU
  if (backend.kind() == "cpu") return MakeKernelTimers(model, backend, batch);
#endif
  return MakeOpTimers(model, backend, batch);
}

void Bench(const Flags& flags) {
  const auto backend = MakeBackend(flags.device, 1);
  PD_REQUIRE(backend->dtype() == DType::kF32, "--device: {} computes in double", flags.device);
  const Model model = Model::Parse(JsonView::Parse(ReadFile(flags.model), flags.model));
  WholeStep step(model, *backend, flags.batch);
  std::vector<KernelTimer> timers = MakeTimers(model, *backend, flags.batch);
  step.Run();
  const double first_loss = step.Loss();
  for (int i = 0; i < 12; ++i) step.Run();
  // The same samples again and again: a step that computes what it should learns them.
  PD_CHECK(step.Loss() < first_loss, "the loss went from {} to {}", first_loss, step.Loss());

  // All in turn, so that a slow moment of the machine meets all alike.
  Stopwatch stopwatch(*backend);
  std::vector<double> updates, steps;
  for (int round = 0; round < flags.rounds; ++round) {
    for (KernelTimer& timer : timers) timer.Round(&stopwatch);
    stopwatch.Start();
    step.Run();
    steps.push_back(stopwatch.StopMs());
    stopwatch.Start();
    step.Update();
    updates.push_back(stopwatch.StopMs());
  }
  std::printf("%s, minibatch of %lld, 1 thread, %d rounds; %s, %s\n", flags.model.c_str(),
              static_cast<long long>(flags.batch), flags.rounds, backend->name().c_str(),
              backend->libraries().c_str());
  const std::vector<Row> rows = Rows(timers, updates, steps);
  Print(rows);
  if (!flags.json.empty()) WriteJson(flags, *backend, rows);
}

}  // namespace
}  // namespace pd::bench

int main(int argc, char** argv) {
  CLI::App app("Times a training step, and the kernels of its layers alone");
  pd::bench::Flags flags;
  app.add_option("MODEL", flags.model, "A model/1 file")->required();
  app.add_option("-b", flags.batch, "Minibatch size")->check(CLI::Range(1, 4096));
  app.add_option("--device", flags.device, "cpu, cuda, cuda:N or ref (cpu)");
  app.add_option("--rounds", flags.rounds, "Of which the medians are taken")
      ->check(CLI::Range(1, 10000));
  app.add_option("--json", flags.json, "Also write the times to this file");
  CLI11_PARSE(app, argc, argv);
  try {
    pd::bench::Bench(flags);
  } catch (const pd::Error& error) {
    std::fprintf(stderr, "step_bench: %s\n", error.what());
    return error.code() == pd::ErrorCode::kInvalidInput ? 2 : 1;
  }
  return 0;
}
