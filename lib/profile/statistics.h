#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace pd {

/// The middle one of `samples`, or the mean of the two in the middle. At least one sample.
inline int64_t Median(std::vector<int64_t> samples) {
  PD_CHECK(!samples.empty(), "the median of nothing");
  std::sort(samples.begin(), samples.end());
  const size_t half = samples.size() / 2;
  if (samples.size() % 2 == 1) return samples[half];
  return samples[half - 1] + (samples[half] - samples[half - 1]) / 2;
}

/// The least sample that at least nine in ten do not exceed. At least one sample.
inline int64_t Percentile90(std::vector<int64_t> samples) {
  PD_CHECK(!samples.empty(), "the percentile of nothing");
  std::sort(samples.begin(), samples.end());
  return samples[(samples.size() * 9 + 9) / 10 - 1];
}

}  // namespace pd
