#pragma once

#include <memory>

#include "backend/backend.h"

namespace pd {

/// The device `timed`: layers of type timed take the time that a profile says, on a timer and not
/// on the processor, and compute nothing, so that a plan is rehearsed with more workers than there
/// are cores, over the real transport, with the real schedule. Every tensor is zeros. Memory is
/// reserved and not touched, so a model may be larger than the machine.
///
/// A wait that ends late is made up for by the next one, so that times add up; what the runtime
/// itself needs between two layers counts as part of the next.
std::unique_ptr<Backend> MakeTimedBackend();

}  // namespace pd
