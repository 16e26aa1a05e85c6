#pragma once

#include <cstddef>
#include <cstdint>

namespace pd {

/// Room for a header, so that the payload behind it is aligned.
inline constexpr size_t kHeaderBytes = 64;

/// Stands before the payload of every border message: the true size travels with the tensor, and a
/// message that does not belong to the minibatch it is used for is noticed.
struct MessageHeader {
  uint64_t sequence = 0;  ///< Segment and minibatch: SequenceOf.
  int64_t samples = 0;
  int64_t tensor = 0;  ///< TensorId.

  bool operator==(const MessageHeader&) const = default;
};
static_assert(sizeof(MessageHeader) <= kHeaderBytes);

/// What the main loss tells of one minibatch: the columns of LossColumn, summed over its samples.
struct MinibatchMetrics {
  uint64_t sequence = 0;
  int64_t samples = 0;
  double loss_sum = 0;  ///< Not weighted.
  double counted = 0, right = 0, top5 = 0;
  int64_t time_ns = 0;  ///< When it was known, by the clock of the worker that says it.
};

/// `segment` counts the stretches between two drains, evaluations too, over the whole run.
inline uint64_t SequenceOf(int64_t segment, int64_t minibatch) {
  return (static_cast<uint64_t>(segment) << 40) | static_cast<uint64_t>(minibatch);
}

}  // namespace pd
