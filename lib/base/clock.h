#pragma once

#include <chrono>
#include <cstdint>

namespace pd {

/// Nanoseconds of the machine's monotonic clock; the same for all processes of one machine.
inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline double NsToMs(int64_t ns) { return static_cast<double>(ns) * 1e-6; }
inline double NsToS(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace pd
