#pragma once

#include <nlohmann/json_fwd.hpp>

#include "plan/plan.h"

namespace pd {

/// The "device" of a profile, which a plan made from it keeps. Strict, as the other readers.
DeviceInfo ReadDevice(const JsonView& json);
nlohmann::ordered_json DeviceJson(const DeviceInfo& device);

}  // namespace pd
