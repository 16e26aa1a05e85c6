#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace pd {

/// One split of a data set, in memory or on disk. Thread-safe for reading.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// The fields of a sample in order: the data first, the label (i32) last.
  virtual const std::vector<TensorSpec>& fields() const = 0;
  /// Number of classes that labels name: every label is below it (checked when opened).
  virtual int64_t classes() const = 0;
  /// Writes field `field` of sample `index`, dense, normalised. `epoch` (from 0) keys augmentation.
  virtual void Read(int64_t index, int field, uint64_t epoch, void* out) const = 0;
};

/// A data set with its two splits.
struct DataSource {
  std::unique_ptr<Dataset> train, test;
  /// One line: format, sizes, normalisation ("mean 0.2860, deviation 0.3530").
  std::string description;
};

/// Recognises the format of the directory `path` by its content, or makes "synthetic" data that
/// fits `fields` and `classes` (as the model wants them). Refuses (kInvalidInput) what it does not
/// know, with the formats it does; damaged files with file, place, expected, found; fields and
/// labels that do not fit the model, with the sample's index.
DataSource OpenData(const std::string& path, const std::vector<TensorSpec>& fields, int64_t classes,
                    uint64_t seed);

/// The order of an epoch: a permutation of 0..size-1 that depends on (seed, epoch) only.
std::vector<int64_t> EpochOrder(uint64_t seed, uint64_t epoch, int64_t size);

}  // namespace pd
