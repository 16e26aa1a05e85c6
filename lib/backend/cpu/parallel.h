#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace pd::cpu {

/// Cuts [0, count) into one range a thread, at multiples of `step`, and calls f(begin, end) for
/// each. What f writes must not depend on the cut.
template <typename F>
void ForRanges(int threads, int64_t count, int64_t step, F f) {
  const int64_t steps = (count + step - 1) / step;
  if (threads <= 1 || steps <= 1) {
    f(int64_t{0}, count);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int64_t team = omp_get_num_threads();
    const int64_t rank = omp_get_thread_num();
    const int64_t begin = std::min(count, steps * rank / team * step);
    const int64_t end = std::min(count, steps * (rank + 1) / team * step);
    if (begin < end) f(begin, end);
  }
}

/// Elements that are worth a thread of their own.
constexpr int64_t kElementsAThread = 16384;

}  // namespace pd::cpu
