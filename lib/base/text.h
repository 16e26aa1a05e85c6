#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pd {

/// Columns that `text`, UTF-8, takes on a terminal: combining marks none, East Asian wide
/// characters and emoji two, all others one.
size_t DisplayWidth(std::string_view text);

/// `text` with what would not show, or would change how its surroundings show, as \u202e: control
/// characters, line and paragraph separators, marks of the direction of writing, invisible
/// characters. Bytes that are no UTF-8 as \xff. Everything else stays as it is.
std::string Printable(std::string_view text);

/// `text` without the byte order mark that some editors put in front of UTF-8.
std::string_view WithoutByteOrderMark(std::string_view text);

/// "1 layer", "2 layers"; `plural` where it is not the noun and an s.
std::string Counted(int64_t count, std::string_view noun, std::string_view plural = "");

}  // namespace pd
