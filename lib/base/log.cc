#include "base/log.h"

#include <unistd.h>

#include <mutex>

#include "base/text.h"

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

// Names come from files: none may turn or hide the rest of its line. Tables have several lines.
std::string ShownLines(std::string_view text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return Printable(text);
  return Printable(text.substr(0, end)) + '\n' + ShownLines(text.substr(end + 1));
}

}  // namespace

void SetLogPrefix(std::string prefix) {
  const std::lock_guard lock(PrefixMutex());
  Prefix() = std::move(prefix);
}

void LogLine(std::string_view text) {
  const std::string shown = ShownLines(text);
  std::string line;
  {
    const std::lock_guard lock(PrefixMutex());
    line = Prefix().empty() ? fmt::format("{}\n", shown) : fmt::format("{}: {}\n", Prefix(), shown);
  }
  // A standard error that cannot be written leaves nobody to tell.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace pd
