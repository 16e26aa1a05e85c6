#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pd {

/// Strict numbers of the command line: the whole text, decimal, finite; no hexadecimal, no spaces.
/// `what` names the option in the complaint (kInvalidInput).
double ParseNumber(std::string_view text, std::string_view what, double min, double max);
int64_t ParseInt(std::string_view text, std::string_view what, int64_t min, int64_t max);

/// "10Gbps", "1.25GB/s" → bytes per second. Prefixes k, M, G, T (decimal); a unit is required.
double ParseRate(std::string_view text, std::string_view what);
/// "16GB", "16GiB", "512MB" → bytes; a unit is required.
int64_t ParseSize(std::string_view text, std::string_view what);

/// For people: "43.0 MB", "1.25 GB".
std::string FormatBytes(double bytes);
/// The smallest size of at most four digits that is no less than `bytes`, as ParseSize reads it:
/// "16.01GB".
std::string SizeAbove(int64_t bytes);

}  // namespace pd
