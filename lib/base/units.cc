#include "base/units.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace pd {
namespace {

// Splits "10Gbps" into the number's text and the unit's.
std::pair<std::string_view, std::string_view> SplitUnit(std::string_view text) {
  size_t end = 0;
  while (end < text.size() &&
         (std::string_view("0123456789.+-").find(text[end]) != std::string_view::npos ||
          ((text[end] == 'e' || text[end] == 'E') && end + 1 < text.size() &&
           std::string_view("0123456789+-").find(text[end + 1]) != std::string_view::npos))) {
    ++end;
  }
  return {text.substr(0, end), text.substr(end)};
}

// The factor of a prefix at the front of `unit`, which is taken off; 1 when there is none.
double TakePrefix(std::string_view& unit) {
  const std::string_view prefixes = "kMGT";
  const size_t at = unit.empty() ? std::string_view::npos : prefixes.find(unit[0]);
  if (at == std::string_view::npos) return 1;
  unit.remove_prefix(1);
  return std::pow(1000.0, static_cast<double>(at) + 1);
}

}  // namespace

double ParseNumber(std::string_view text, std::string_view what, double min, double max) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  PD_REQUIRE(error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
                 value >= min && value <= max,
             "{}: expected a number from {} to {}, found \"{}\"", what, min, max, text);
  return value;
}

int64_t ParseInt(std::string_view text, std::string_view what, int64_t min, int64_t max) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool fits =
      error == std::errc() && end == text.data() + text.size() && value >= min && value <= max;
  if (!fits && max == INT64_MAX) {
    Throw(ErrorCode::kInvalidInput, "{}: expected an integer of at least {}, found \"{}\"", what,
          min, text);
  }
  PD_REQUIRE(fits, "{}: expected an integer from {} to {}, found \"{}\"", what, min, max, text);
  return value;
}

double ParseRate(std::string_view text, std::string_view what) {
  auto [number, unit] = SplitUnit(text);
  const double factor = TakePrefix(unit);
  PD_REQUIRE(!number.empty() && (unit == "bps" || unit == "B/s"),
             "{}: expected a rate with a unit, such as 10Gbps or 1.25GB/s, found \"{}\"", what,
             text);
  const double rate = ParseNumber(number, what, 0, 1e300) * factor / (unit == "bps" ? 8 : 1);
  PD_REQUIRE(rate > 0 && std::isfinite(rate), "{}: expected a rate above zero, found \"{}\"", what,
             text);
  return rate;
}

int64_t ParseSize(std::string_view text, std::string_view what) {
  auto [number, unit] = SplitUnit(text);
  double factor = 1;
  if (unit.size() == 3 && unit.substr(1) == "iB") {
    const size_t at = std::string_view("KMGT").find(unit[0]);
    if (at != std::string_view::npos) {
      factor = std::pow(1024.0, static_cast<double>(at) + 1);
      unit = "B";
    }
  } else {
    factor = TakePrefix(unit);
  }
  PD_REQUIRE(!number.empty() && unit == "B",
             "{}: expected a size with a unit, such as 16GB or 16GiB, found \"{}\"", what, text);
  const double size = ParseNumber(number, what, 0, 1e18) * factor;
  PD_REQUIRE(size >= 1 && size <= 1e18, "{}: expected a size from 1B to 1e18B, found \"{}\"", what,
             text);
  return static_cast<int64_t>(size);
}

std::string FormatBytes(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  while (std::abs(bytes) >= 999.5 && unit < 5) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  const double size = std::abs(bytes);
  const int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;  // three digits
  return fmt::format("{:.{}f} {}", bytes, decimals, units[unit]);
}

}  // namespace pd
