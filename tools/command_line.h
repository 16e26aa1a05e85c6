#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace pd {

/// What a command line that cannot be parsed is answered with: one line.
inline std::string Complaint(const CLI::App& app, const CLI::ParseError& error) {
  const std::string help = fmt::format("see {} --help", app.get_name());
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError))
    return fmt::format("{}; {}", error.what(), help);
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const std::string& word : app.remaining()) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string flag = word.substr(0, word.find('='));
    const std::string near = Nearest(flag, {names.begin(), names.end()});
    return fmt::format("unknown flag {}; {}", flag,
                       near.empty() ? help : fmt::format("did you mean {}?", near));
  }
  return fmt::format("{}: expected no more arguments; {}", app.remaining().front(), help);
}

/// Answers a command line that asks for help or the version, or cannot be parsed; returns the exit
/// status.
inline int Answer(const CLI::App& app, const CLI::ParseError& error, bool speaks = true) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    return speaks ? app.exit(error) : 0;
  }
  if (speaks) LogLine(Complaint(app, error));
  return 2;
}

/// The exit status of a program that fails with `error`.
inline int StatusOf(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return known != nullptr && known->code() == ErrorCode::kInvalidInput ? 2 : 1;
}

/// Says what went wrong, in one line; returns the exit status.
inline int Complain(const std::exception& error) {
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  LogLine(memory ? "out of memory" : error.what());
  return StatusOf(error);
}

}  // namespace pd
