#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace pd {

/// Sets the words before every log line of this process, for example "pd-train: rank 1".
void SetLogPrefix(std::string prefix);

/// Writes one line, "PREFIX: TEXT\n", to standard error in one write, so that lines of several
/// processes and threads do not mix. Characters that would hide or turn it are shown as numbers
/// (base/text.h).
void LogLine(std::string_view text);

template <typename... Args>
void Log(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void Warn(fmt::format_string<Args...> format, Args&&... args) {
  LogLine("warning: " + fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace pd
