#pragma once

#include <exception>
#include <functional>

#include "train/startup.h"
#include "transport/transport.h"

namespace pd {

/// A run of pd-train on this rank, from the arguments to the exit status: 0, or 3 when a target
/// accuracy was given and not reached. Every rank calls it with the same arguments. Throws
/// CollectiveError (the same on every rank) for what is refused at start, anything else for what
/// fails on this rank later, after `on_failure` was called with it: the place to end the other
/// ranks, which wait for this one, before anything here unwinds or waits.
int RunTraining(const TrainArguments& arguments, Transport& transport,
                const std::function<void(const std::exception&)>& on_failure = {});

/// pd-train --check: reads plan and config in this process alone, plans every stage on the device
/// and prints ranks, memory and minibatches in flight to standard error. Nothing is trained.
void CheckPlan(const TrainArguments& arguments);

}  // namespace pd
