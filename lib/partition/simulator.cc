#include "partition/simulator.h"

#include <algorithm>
#include <numeric>

#include "partition/event_simulator.h"

namespace pd {
namespace {

using simulation::Simulator;

constexpr int64_t kWindow = 16;     // Minibatches of two stretches that must agree, at least.
constexpr int64_t kMeasured = 48;   // Minibatches measured where stretches do not agree, at least.
constexpr int64_t kMaxCycle = 512;  // Longest common cycle of the replicas that is measured whole.

}  // namespace

Simulation Simulate(const std::string& schedule, const PipelineShape& shape,
                    const SimulatedPipeline& pipeline) {
  int64_t cycle = 1, widest = 1, ahead = 1;
  for (const auto& stage : shape.stages) {
    widest = std::max<int64_t>(widest, stage.replicas);
    ahead = std::max<int64_t>(ahead, int64_t{stage.replicas} * stage.in_flight);
    cycle = std::lcm(cycle, int64_t{stage.replicas});
    if (cycle > kMaxCycle) cycle = kMaxCycle;
  }
  cycle = std::max(cycle, widest);
  const int64_t measured = (kMeasured + cycle - 1) / cycle * cycle;
  const int64_t from = 2 * ahead;
  Simulator::Options options;
  options.minibatches = from + measured + ahead + cycle;
  options.settled = ahead;
  options.draining = from + measured;
  options.window = (kWindow + cycle - 1) / cycle * cycle;
  Simulator simulator(schedule, shape, pipeline, options);
  simulator.Run();
  if (const auto steady = simulator.steady_ms()) return {*steady, simulator.work()};
  const double ms = simulator.done(from + measured) - simulator.done(from);
  return {ms / static_cast<double>(measured), simulator.work()};
}

SimulatedRun SimulateRun(const std::string& schedule, const PipelineShape& shape,
                         const SimulatedPipeline& pipeline, int64_t minibatches, bool trace) {
  Simulator simulator(schedule, shape, pipeline, {.minibatches = minibatches, .trace = trace});
  simulator.Run();
  SimulatedRun run = simulator.TakeRun();
  run.work = simulator.work();
  return run;
}

}  // namespace pd
