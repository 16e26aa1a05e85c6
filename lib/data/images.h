#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/transform.h"

namespace pd {

/// One split of labelled images as its files held it: one byte a pixel and a label.
struct ByteImages {
  std::string images_file, labels_file;  ///< For complaints.
  Shape shape;                           ///< Of one image: [channels, height, width].
  std::vector<uint8_t> pixels, labels;   ///< pixels dense, one image after the other.
};

/// Refuses a model whose inputs are not data (f32) and a label (i32, shape []). `format` is for the
/// complaint.
void CheckLabelledFields(const std::string& format, const DataRequest& request);
/// The same, and refuses data that is not of shape [channels, height, width], and options that
/// images do not have. `files`: as ImageOptions::Read.
ImageOptions ReadImageRequest(const std::string& format, const DataRequest& request,
                              bool files = false);

/// Refuses images of `file` whose shape cannot be made to the model's input.
void CheckFits(const std::string& file, const Shape& image, const DataRequest& request,
               const ImageOptions& options);

/// "resized to 256, cropped, …, normalised by mean 0.2860, deviation 0.3530 of the training
/// pixels"; `measured`: of what they are, where options do not give them.
std::string DescribeImages(const ImageOptions& options, const Normalisation& normalisation,
                           const std::string& measured);
/// DataSource::metadata of images; `classes` may be empty.
std::string ImageMetadata(const std::string& format, const ImageOptions& options,
                          const Normalisation& normalisation,
                          const std::vector<std::string>& classes);

/// Data sets that keep the pixels as bytes and transform them while reading. Mean and deviation are
/// over all pixels of the training images, unless options give them. Refuses (kInvalidInput): image
/// shapes that do not fit the model's, labels not below their limit (with the sample's index), no
/// training image, numbers of images and labels that differ.
DataSource MakeImageSource(const std::string& format, ByteImages train, ByteImages test,
                           const DataRequest& request);

}  // namespace pd
