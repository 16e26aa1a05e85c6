#include "base/units.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace pd {
namespace {

constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};

// The whole text as a number.
std::optional<double> Finite(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

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
  const auto value = Finite(text);
  PD_REQUIRE(value && *value >= min && *value <= max,
             "{}: expected a number from {} to {}, found \"{}\"", what, min, max, text);
  return *value;
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
  const auto value = Finite(number);
  PD_REQUIRE(value && (unit == "bps" || unit == "B/s"),
             "{}: expected a rate with a unit, such as 10Gbps or 1.25GB/s, found \"{}\"", what,
             text);
  const double rate = *value * factor / (unit == "bps" ? 8 : 1);
  PD_REQUIRE(rate > 0, "{}: expected a rate above zero, found \"{}\"", what, text);
  PD_REQUIRE(std::isfinite(rate), "{}: expected a rate below 1e308B/s, found \"{}\"", what, text);
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
  const auto value = Finite(number);
  PD_REQUIRE(value && unit == "B",
             "{}: expected a size with a unit, such as 16GB or 16GiB, found \"{}\"", what, text);
  const double size = *value * factor;
  PD_REQUIRE(size >= 1 && size <= 1e18, "{}: expected a size from 1B to 1e18B, found \"{}\"", what,
             text);
  return std::llround(size);  // 16.01GB has no exact double
}

std::string SizeAbove(int64_t bytes) {
  int64_t digits = bytes;
  int power = 0;  // digits · 10^power ≥ bytes
  for (; digits > 9999; ++power) digits = (digits + 9) / 10;
  int exponent = power;
  for (int64_t rest = digits; rest > 9; rest /= 10) ++exponent;
  const int unit = std::min(exponent / 3, 4);
  const double value = static_cast<double>(digits) * std::pow(10, power) / std::pow(1000, unit);
  return fmt::format("{:.4g}{}", value, kUnits[unit]);
}

std::string FormatBytes(double bytes) {
  int unit = 0;
  while (std::abs(bytes) >= 999.5 && unit < 5) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  const double size = std::abs(bytes);
  const int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;  // three digits
  return fmt::format("{:.{}f} {}", bytes, decimals, kUnits[unit]);
}

}  // namespace pd
