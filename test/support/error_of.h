#pragma once

#include <string>

#include "base/error.h"

/// The text of the pd::Error of kind `code` that `call` throws; words that no test looks for when
/// it throws none or another kind. Also sees to it that the text is one line.
template <typename Call>
std::string ErrorOf(Call&& call, pd::ErrorCode code = pd::ErrorCode::kInvalidInput) {
  try {
    call();
  } catch (const pd::Error& error) {
    const std::string text = error.what();
    if (error.code() != code) return "(error of another kind)";
    return text.find('\n') == std::string::npos ? text : "(more than one line)";
  }
  return "(no error)";
}
