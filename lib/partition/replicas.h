#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pd {

/// The replicas of a plan's stages as text: "7-1"; a run of five or more alike as "1x64".
std::string FormatReplicas(const std::vector<int>& replicas);

/// Reads what FormatReplicas writes, with commas for dashes too: "3,1", "2-1x8". Throws
/// kInvalidInput, naming `what`: anything else, replicas or stages outside 1 to 4096.
std::vector<int> ParseReplicas(std::string_view text, std::string_view what);

}  // namespace pd
