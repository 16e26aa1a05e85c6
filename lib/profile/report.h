#pragma once

#include <string>
#include <vector>

#include "profile/profiler.h"

namespace pd {

/// The profile for people: a row a layer, the total, and the sum of the layers beside an untimed
/// pass. Lines with final newlines.
std::string FormatProfile(const ProfileResult& result);

/// Reasons not to trust the times: the sum of the layers and an untimed pass differ by more than a
/// tenth; the slowest tenth of the untimed passes takes more than 1.3 times the median; other
/// programs took more than a twentieth of the time.
std::vector<std::string> ProfileWarnings(const ProfileResult& result);

}  // namespace pd
