#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace pd {

/// A directory of its own under the system's temporary one, removed at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// The four files of an IDX data set, as bytes.
struct IdxBytes {
  std::string train_images, train_labels, test_images, test_labels;
};

/// An IDX file: magic number, extents, values.
std::string Idx(const std::vector<uint32_t>& extents, const std::string& values);
/// 100 training and 20 test images of 6 x 5 pixels in 4 classes; every byte known by rule:
/// pixel p of image i is (31 i + 7 p) mod 256, label (3 i) mod 4.
IdxBytes SmallIdx();
uint8_t SmallPixel(int64_t image, int64_t pixel);
int SmallLabel(int64_t image);

/// Packs with gzip.
std::string Gzip(const std::string& bytes);

/// Writes the four files under MNIST's names with `ending` ("", ".gz") behind.
void WriteIdx(const TempDir& directory, const IdxBytes& bytes, const std::string& ending = "");

/// The inputs of a model for such images: image f32 and label.
std::vector<DataField> ImageFields(const Shape& shape, int64_t classes);
std::vector<TensorSpec> SpecsOf(const std::vector<DataField>& fields);

/// OpenData with these "data_options".
DataSource Open(const std::string& path, const std::vector<DataField>& fields,
                const std::string& options = "{}", uint64_t seed = 1);

/// What OpenData says when it refuses `path`, or "accepted". Checks that it is one line and
/// kInvalidInput.
std::string Refusal(const std::string& path, const std::vector<DataField>& fields,
                    const std::string& options = "{}");

}  // namespace pd
