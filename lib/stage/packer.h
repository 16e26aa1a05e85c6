#pragma once

#include <cstddef>
#include <vector>

namespace pd {

/// A piece of memory that is alive from step `begin` to step `end`, both included.
struct Lifetime {
  size_t bytes = 0;
  int begin = 0, end = 0;
};

struct Packing {
  std::vector<size_t> offsets;  ///< One a lifetime, 64-byte aligned.
  size_t bytes = 0;             ///< Of the whole block.
};

/// Places pieces in one block so that pieces alive at the same step never overlap: the largest
/// first, each at the lowest offset that fits. Deterministic. Cost: O(n²).
Packing Pack(const std::vector<Lifetime>& pieces);

/// `bytes` rounded up to the alignment of all buffers.
inline size_t Align(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace pd
