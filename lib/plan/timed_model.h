#pragma once

#include "base/json.h"
#include "plan/plan.h"

namespace pd {

/// The model/1 document with which device `timed` rehearses a plan: a layer of type timed for each
/// of plan.layers, with its times and the sizes of its tensors (rounded up to whole elements a
/// sample, and to a rectangle of parameters). It reads one number a sample and a label; layers that
/// no other reads are losses. Works for plans whose profile had no model. Throws kInvalidInput: a
/// plan without costs.
JsonView TimedModel(const Plan& plan);

}  // namespace pd
