#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace pd::bench {

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
  void Round();
  double MedianMs() const;
  double LeastMs() const;
};

double Median(std::vector<double> values);
double Least(const std::vector<double>& values);

/// The kernels of one training step of `model`, driven directly: convolution, linear, max pooling
/// and relu on oneDNN in the formats that it likes best, without regard to the layers around; the
/// other layers as `backend`'s own operations.
std::vector<KernelTimer> MakeKernelTimers(const Model& model, Backend& backend, int64_t batch);

}  // namespace pd::bench
