#pragma once

#include <vector>

#include "timing.h"

namespace pd::bench {

/// The kernels of one training step of `model`, driven directly: convolution, linear, max pooling
/// and relu on oneDNN in the formats that it likes best, without regard to the layers around; the
/// other layers as `backend`'s own operations.
std::vector<KernelTimer> MakeKernelTimers(const Model& model, Backend& backend, int64_t batch);

}  // namespace pd::bench
