#pragma once

#include <string_view>
#include <vector>

namespace pd {

/// The kinds that this build has, as MakeBackend takes them; without "auto".
std::vector<std::string_view> BackendKinds();

}  // namespace pd
