#pragma once

#include <cstdint>
#include <vector>

#include "schedule/trace.h"

namespace pd {

/// Slices of a worker; a fixed number, taken at the start. Later ones are counted, not kept.
class Trace {
 public:
  explicit Trace(size_t capacity) { slices_.reserve(capacity); }
  void Add(const TraceSlice& slice) {
    if (slices_.size() < slices_.capacity()) {
      slices_.push_back(slice);
    } else {
      ++dropped_;
    }
  }
  const std::vector<TraceSlice>& slices() const { return slices_; }
  void Clear() { slices_.clear(); }
  int64_t dropped() const { return dropped_; }

 private:
  std::vector<TraceSlice> slices_;
  int64_t dropped_ = 0;
};

}  // namespace pd
