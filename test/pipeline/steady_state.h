#pragma once

#include <functional>
#include <vector>

#include "pipeline/pipelined.h"

namespace pd {

/// Trains 44 minibatches of `c` on threads. The input stage's first worker calls `begin` at its
/// minibatch 8 and `end` at minibatch 28, whatever the other threads do meanwhile. `copy` as
/// LoopbackHub's.
void InSteadyState(const TrainingCase& c, const std::function<void()>& begin,
                   const std::function<void()>& end, LoopbackHub::Copy copy = nullptr);

/// What to run so: plans with replicas, with several stages, with both.
std::vector<NamedCase> SteadyCases(const std::string& backend);

}  // namespace pd
