#pragma once

#include <functional>
#include <string>
#include <vector>

#include "partition/simulator.h"
#include "schedule/schedule.h"

namespace pd {

/// Periods that differ by less than this share count as the same.
inline constexpr double kSamePeriod = 1e-3;

/// The pipeline of a plan whose stages have these depths: some may have to recompute.
using PipelineOfDepths = std::function<const SimulatedPipeline&(const std::vector<int>& depths)>;

/// Chooses the minibatches in flight of each stage: the default of design, ⌈(Σ_{t≥s} r_t)/r_s⌉, or
/// more where the simulated period falls for it. `most`: what fits the memory of each stage.
/// `bound_ms`: a period that no depth can beat, at which the search stops. Deterministic;
/// `work_left` (Simulation::work) is what the simulations may cost, and is lowered by what they
/// did. Returns one depth a stage; the default's where not even that fits.
std::vector<int> ChooseInFlight(const std::string& schedule, const PipelineShape& shape,
                                const PipelineOfDepths& pipeline, const std::vector<int>& most,
                                double bound_ms, int64_t& work_left);

}  // namespace pd
