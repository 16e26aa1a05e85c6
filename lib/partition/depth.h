#pragma once

#include <string>
#include <vector>

#include "partition/simulator.h"
#include "schedule/schedule.h"

namespace pd {

/// Chooses the minibatches in flight of each stage: the default of design, ⌈(Σ_{t≥s} r_t)/r_s⌉,
/// raised only where the simulated period falls by more than 1 % for it. `most`: what fits the
/// memory of each stage. `bound_ms`: a period that no depth can beat, at which the search stops.
/// Deterministic; `work_left` (Simulation::work) is what the simulations may cost, and is lowered
/// by what they did. Returns one depth a stage.
std::vector<int> ChooseInFlight(const std::string& schedule, const PipelineShape& shape,
                                const SimulatedPipeline& pipeline, const std::vector<int>& most,
                                double bound_ms, int64_t& work_left);

}  // namespace pd
