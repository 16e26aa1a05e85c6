#include "base/version.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace pd {

std::string VersionLine(std::string_view tool, std::string_view libraries) {
  return fmt::format("{} {} ({}{}fmt {}.{}.{}, nlohmann/json {}.{}.{})", tool, PD_VERSION,
                     libraries, libraries.empty() ? "" : ", ", FMT_VERSION / 10000,
                     FMT_VERSION / 100 % 100, FMT_VERSION % 100, NLOHMANN_JSON_VERSION_MAJOR,
                     NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH);
}

}  // namespace pd
