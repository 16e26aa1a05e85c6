#pragma once

#include <string>
#include <vector>

namespace pd {

using TableRow = std::vector<std::string>;

/// Columns as wide as their widest cell; the first `left` left-aligned, the others right-aligned.
std::string Aligned(const std::vector<TableRow>& rows, size_t left);

/// "12.34 ms", four digits.
std::string FormatMs(double ms);

}  // namespace pd
