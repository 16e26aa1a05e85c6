#pragma once

#include "train/startup.h"
#include "transport/transport.h"

namespace pd {

/// A run of pd-train on this rank, from the arguments to the exit status: 0, or 3 when a target
/// accuracy was given and not reached. Every rank calls it with the same arguments. Throws
/// CollectiveError (the same on every rank) for what is refused at start, Error for what fails
/// later: then the other ranks must be ended (Transport::Abort), since they wait for this one.
int RunTraining(const TrainArguments& arguments, Transport& transport);

/// pd-train --check: reads plan and config in this process alone, plans every stage on the device
/// and prints ranks, memory and minibatches in flight to standard error. Nothing is trained.
void CheckPlan(const TrainArguments& arguments);

}  // namespace pd
