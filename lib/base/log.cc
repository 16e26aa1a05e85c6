#include "base/log.h"

#include <unistd.h>

#include <mutex>

namespace pd {
namespace {

// The prefix belongs to the process, as its standard error does.
std::mutex& PrefixMutex() {
  static std::mutex mutex;
  return mutex;
}

std::string& Prefix() {
  static std::string prefix;
  return prefix;
}

}  // namespace

void SetLogPrefix(std::string prefix) {
  const std::lock_guard lock(PrefixMutex());
  Prefix() = std::move(prefix);
}

void LogLine(std::string_view text) {
  std::string line;
  {
    const std::lock_guard lock(PrefixMutex());
    line = Prefix().empty() ? fmt::format("{}\n", text) : fmt::format("{}: {}\n", Prefix(), text);
  }
  // A standard error that cannot be written leaves nobody to tell.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace pd
