#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/json.h"

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

}  // namespace pd
