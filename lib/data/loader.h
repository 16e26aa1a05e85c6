#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"

namespace pd {

/// One minibatch as the loader prepared it.
struct Minibatch {
  int64_t number = 0;                    ///< Within the epoch, from 0.
  int64_t samples = 0;                   ///< The last of an epoch may be short.
  std::vector<const std::byte*> fields;  ///< Dense, samples rows each.
};

/// Reads minibatches ahead on threads of its own, into buffers taken once. One consumer. What it
/// gives does not depend on the number of threads.
class Loader {
 public:
  /// `depth` minibatches are read ahead of the one in use: depth + 1 buffers, each field 64-byte
  /// aligned. `threads` read at once, each some samples of a minibatch. The data set outlives the
  /// loader.
  Loader(const Dataset& data, int64_t batch_size, int depth, int threads = 1);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Minibatches of one pass over the data set: ⌈size / batch_size⌉.
  int64_t num_minibatches() const;
  int64_t SamplesIn(int64_t minibatch) const;

  /// Starts a pass over samples in `order` (EpochOrder, or some or all in order for evaluation), of
  /// which those of the first `end` minibatches are read: this worker will ask for minibatches
  /// first, first + step, … below `end`. Interrupts an earlier pass and drops what it left.
  void Start(std::vector<int64_t> order, uint64_t epoch, int64_t first, int64_t step, int64_t end);

  /// The next minibatch; waits until it is read. Valid until the next call. Allocates nothing.
  /// Throws what reading the first bad sample threw, after the minibatches before it; kInternal
  /// after the last one of the pass.
  const Minibatch& Next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pd
