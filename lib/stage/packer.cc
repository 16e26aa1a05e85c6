#include "stage/packer.h"

#include <algorithm>
#include <numeric>

namespace pd {

Packing Pack(const std::vector<Lifetime>& pieces) {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return pieces[a].bytes > pieces[b].bytes; });
  Packing packing;
  packing.offsets.resize(pieces.size());
  std::vector<size_t> placed;  // by offset
  for (const size_t i : order) {
    size_t offset = 0;
    for (const size_t other : placed) {
      const bool together =
          pieces[other].begin <= pieces[i].end && pieces[i].begin <= pieces[other].end;
      if (!together) continue;
      if (offset + pieces[i].bytes <= packing.offsets[other]) break;
      offset = std::max(offset, packing.offsets[other] + Align(pieces[other].bytes));
    }
    packing.offsets[i] = offset;
    packing.bytes = std::max(packing.bytes, offset + Align(pieces[i].bytes));
    const auto at = std::find_if(placed.begin(), placed.end(),
                                 [&](size_t other) { return packing.offsets[other] > offset; });
    placed.insert(at, i);
  }
  return packing;
}

}  // namespace pd
