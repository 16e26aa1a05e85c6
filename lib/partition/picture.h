#pragma once

#include <string>

#include "plan/plan.h"

namespace pd {

/// A picture of a plan as SVG text: the layers from left to right as bars of compute (forward,
/// backward, update) and of bytes (output, parameters), the stages under them with workers,
/// replicas and memory, and what crosses each border. Bars share one scale a panel; names of layers
/// are drawn where there is room and stand in each bar's tooltip otherwise. Self-contained: no
/// scripts, fonts or links. The same plan gives the same bytes.
/// `plan` has layer costs, as all plans of pd-partition have; throws kInvalidInput otherwise.
std::string PlanPicture(const Plan& plan);

}  // namespace pd
