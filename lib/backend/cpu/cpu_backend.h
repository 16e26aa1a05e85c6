#pragma once

#include <memory>

#include "backend/backend.h"

namespace pd {

/// The backend on oneDNN's CPU kernels. Sets the calling thread's number of OpenMP threads; all
/// calls must come from this thread, but for AddScaled, ToDense and FromDense. Results depend on
/// inputs and `threads` alone.
std::unique_ptr<Backend> MakeCpuBackend(int threads);

}  // namespace pd
