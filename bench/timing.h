#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace pd::bench {

/// Times work of a backend's compute queue by its marks: on a device what the device took.
class Stopwatch {
 public:
  explicit Stopwatch(Backend& backend)
      : backend_(backend), begin_(backend.MakeMark()), end_(backend.MakeMark()) {}

  void Start() { backend_.Record(Queue::kCompute, *begin_, "benchmark: begin"); }
  /// Of the work queued since Start; waits until it is done.
  double StopMs() {
    backend_.Record(Queue::kCompute, *end_, "benchmark: end");
    backend_.WaitOnHost(*end_, "benchmark: end");
    return backend_.ElapsedMs(*begin_, *end_);
  }

 private:
  Backend& backend_;
  std::unique_ptr<Mark> begin_, end_;
};

/// One way to do a piece of work, and how long it took.
struct Candidate {
  std::function<void()> run;
  std::vector<double> times_ms;
};

/// A kernel by itself, in each way that the library has; its time is that of the fastest.
struct KernelTimer {
  std::string layer, what;
  std::vector<Candidate> candidates;

  /// Runs each candidate twice and keeps the second time: nothing but the kernel, on warm caches.
  void Round(Stopwatch* stopwatch);
  double MedianMs() const;
  double LeastMs() const;
};

double Median(std::vector<double> values);
double Least(const std::vector<double>& values);

/// The timer of a layer's piece of work, added where there is none yet.
KernelTimer& TimerOf(const std::string& layer, const std::string& what,
                     std::vector<KernelTimer>* timers);

/// Memory of the backend with values half of which are negative, and none denormal; labels are 0.
std::shared_ptr<Buffer> MakeMemory(Backend& backend, size_t bytes, DType dtype = DType::kF32);

/// Adds what an operation does in a training step (forward, gradients of inputs, of parameters), on
/// memory of its own.
void AddOpTimers(Backend& backend, std::unique_ptr<Op> op, const OpRequest& request,
                 const std::string& layer, std::vector<KernelTimer>* timers);

/// The operations of one training step of `model` on `backend`, each by itself.
std::vector<KernelTimer> MakeOpTimers(const Model& model, Backend& backend, int64_t batch);

}  // namespace pd::bench
