#include "partition/aligned.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace pd {
std::string Aligned(const std::vector<TableRow>& rows, size_t left) {
  std::vector<size_t> widths;
  for (const TableRow& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], DisplayWidth(row[c]));
  }
  std::string out;
  for (const TableRow& row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - DisplayWidth(row[c]), ' ');
      line += (c < left ? row[c] + pad : pad + row[c]) + "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string FormatMs(double ms) { return fmt::format("{:.4g} ms", ms); }

}  // namespace pd
