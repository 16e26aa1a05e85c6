#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pd {

/// The kinds that this build has, as MakeBackend takes them; without "auto".
std::vector<std::string_view> BackendKinds();

/// Versions of the libraries that this build's backends use: "oneDNN 2.6.3".
std::string BackendLibraries();

}  // namespace pd
