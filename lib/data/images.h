#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace pd {

/// What the model reads, as OpenData was given it.
struct DataRequest {
  const std::vector<TensorSpec>& fields;
  int64_t classes = 0;
  uint64_t seed = 0;
};

/// One split of labelled images as its files held it: one byte a pixel and a label.
struct ByteImages {
  std::string images_file, labels_file;  ///< For complaints.
  Shape shape;                           ///< Of one image.
  std::vector<uint8_t> pixels, labels;   ///< pixels dense, one image after the other.
};

/// Refuses a model whose inputs are not data (f32) and a label (i32, shape []). `format` is for the
/// complaint.
void CheckLabelledFields(const std::string& format, const DataRequest& request);

/// Data sets that keep the pixels as bytes and normalise while reading: (pixel / 255 - mean) /
/// deviation, both over all pixels of the training images (a deviation of 0 divides by 1). Refuses
/// (kInvalidInput): image shapes other than the model's, labels not below its classes (with the
/// sample's index), no training image, numbers of images and labels that differ.
DataSource MakeImageSource(const std::string& format, ByteImages train, ByteImages test,
                           const DataRequest& request);

}  // namespace pd
