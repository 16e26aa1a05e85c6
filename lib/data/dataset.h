#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/tensor.h"

namespace pd {

/// An input of the model, which a data set fills.
struct DataField {
  std::string name;
  TensorSpec spec;
  int64_t limit = 0;    ///< i32: values are 0 to limit - 1.
  bool target = false;  ///< i32 that only losses read: kIgnoredTarget is right, too.
};

/// What is asked of a format.
struct DataRequest {
  const std::vector<DataField>& fields;
  /// Config's "data_options", an object. One flat list of keys for all formats; each refuses those
  /// that it has no use for (JsonView::CheckKeys).
  const JsonView& options;
  uint64_t seed = 0;
};

/// One split of a data set, in memory or on disk. Thread-safe for reading.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// The fields of a sample, one for each of the request's.
  virtual const std::vector<TensorSpec>& fields() const = 0;
  /// Writes field `field` of sample `index`, dense, normalised. `epoch` (from 0) keys augmentation.
  virtual void Read(int64_t index, int field, uint64_t epoch, void* out) const = 0;
};

/// A data set with its two splits.
struct DataSource {
  std::unique_ptr<Dataset> train, test;
  /// One line: format, sizes, normalisation ("mean 0.2860, deviation 0.3530").
  std::string description;
  /// What was learned from the training split (names of classes in order, vocabulary,
  /// normalisation), as a JSON object: what another program needs to use the model.
  std::string metadata = "{}";
  /// Threads that Loader should read with: what data_options say, or what suits the format.
  int decode_threads = 1;
};

/// Recognises the format of the directory `path` by its content, or makes "synthetic" data that
/// fits `fields` (as the model wants them). Refuses (kInvalidInput) what it does not know, with the
/// formats it does; damaged files with file, place, expected, found; fields that do not fit the
/// model; i32 values outside their field's limit, with file and sample index; unknown options.
DataSource OpenData(const std::string& path, const std::vector<DataField>& fields,
                    const JsonView& options, uint64_t seed);

/// The order of an epoch: a permutation of 0..size-1 that depends on (seed, epoch) only.
std::vector<int64_t> EpochOrder(uint64_t seed, uint64_t epoch, int64_t size);

}  // namespace pd
