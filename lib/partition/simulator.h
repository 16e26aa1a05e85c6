#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "partition/pipeline.h"
#include "schedule/schedule.h"
#include "schedule/trace.h"

namespace pd {

struct Simulation {
  double minibatch_ms = 0;  ///< Steady-state period of the whole pipeline.
  int64_t work = 0;         ///< Events and actions of the simulation itself.
};

/// Runs the action lists of `schedule` as pd-train's workers do (pipeline/worker.h): a device and
/// full-duplex links a worker (SimulatedNetwork); messages leave as soon as their tensors are
/// there, large ones once the receiver has a buffer for them; passes wait for the buffers that they
/// reuse, and for acknowledgements where no gradient throttles a stage; buckets of gradients are
/// summed over the replicas while the backward pass goes on, and the update takes them one by one.
/// The period is measured over minibatches in the steady state. Not known here: processor time that
/// communication costs, the loader, and the sum of an all-reduce. Throws kInvalidInput for depths
/// with which the schedule locks up.
Simulation Simulate(const std::string& schedule, const PipelineShape& shape,
                    const SimulatedPipeline& pipeline);

/// What each worker did in a run from a cold start to its end.
struct SimulatedRun {
  struct Worker {
    int id = 0;  ///< In the cluster.
    int stage = 0, replica = 0;
    double compute_ms = 0;
    int64_t bytes_sent = 0, bytes_received = 0;
    std::vector<TraceSlice> compute, messages;  ///< If asked for; as pd-train's trace has them.
  };
  std::vector<Worker> workers;
  double total_ms = 0;  ///< To the last update.
  int64_t work = 0;
};
SimulatedRun SimulateRun(const std::string& schedule, const PipelineShape& shape,
                         const SimulatedPipeline& pipeline, int64_t minibatches, bool trace);

/// A simulated run as a trace of `ranks` ranks, in pd-train's format.
std::string FormatTrace(const SimulatedRun& run, int ranks);

}  // namespace pd
