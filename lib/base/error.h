#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace pd {

/// What kind of thing went wrong. Tools exit with 2 for kInvalidInput, with 1 otherwise.
enum class ErrorCode { kInvalidInput, kIo, kDevice, kComm, kInternal };

/// The only exception that lib/ throws: one line that says what was seen and what was wanted. Line
/// ends in it, as of a file's name, become \n.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text)
      : std::runtime_error(InOneLine(text)), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  static std::string InOneLine(const std::string& text) {
    std::string line;
    for (const char c : text) line += c == '\n' ? "\\n" : std::string(1, c);
    return line;
  }

  ErrorCode code_;
};

/// Throws Error with a formatted text: Throw(ErrorCode::kIo, "{}: cannot open: {}", path, reason).
template <typename... Args>
[[noreturn]] void Throw(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace pd

/// For what a user or a file gave. Throws kInvalidInput with a formatted text.
#define PD_REQUIRE(condition, ...)                              \
  do {                                                          \
    if (!(condition)) {                                         \
      ::pd::Throw(::pd::ErrorCode::kInvalidInput, __VA_ARGS__); \
    }                                                           \
  } while (false)

/// For our own invariants; stays on in release builds. Throws kInternal with place and formatted
/// text.
#define PD_CHECK(condition, ...)                                                                 \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      ::pd::Throw(::pd::ErrorCode::kInternal, "{}:{}: check failed: {}: {}", __FILE__, __LINE__, \
                  #condition, fmt::format(__VA_ARGS__));                                         \
    }                                                                                            \
  } while (false)
