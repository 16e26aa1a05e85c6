#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace pd {

/// The weight versions of a replica: immutable blocks, of which an update writes a new one, so that
/// stashing a version copies nothing. `in_flight` blocks suffice: when version v is written, those
/// still needed are v − in_flight + 1 … v − 1, and v − in_flight is over (with one in flight the
/// update is in place).
class WeightVersions {
 public:
  WeightVersions(Backend& backend, int in_flight, size_t bytes) {
    for (int i = 0; i < in_flight; ++i) blocks_.push_back(backend.Allocate(bytes));
  }
  /// The weights after `version` updates of this segment; version 0 are those at its start.
  std::byte* At(int64_t version) const {
    return blocks_[static_cast<size_t>(base_ + version) % blocks_.size()].data();
  }
  /// Version 0: between segments the newest.
  std::byte* start() const { return At(0); }
  /// A segment of `updates` updates has ended: its last version is the next one's version 0.
  void EndSegment(int64_t updates) { base_ += updates; }

 private:
  std::vector<Buffer> blocks_;
  int64_t base_ = 0;
};

}  // namespace pd
