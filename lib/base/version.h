#pragma once

#include <string>
#include <string_view>

namespace pd {

/// "pd-train 0.1.0 (oneDNN 2.6.3, fmt 9.1.0, nlohmann/json 3.11.2)": `libraries` are those of the
/// tool's own.
std::string VersionLine(std::string_view tool, std::string_view libraries);

}  // namespace pd
