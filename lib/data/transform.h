#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tensor/tensor.h"

namespace pd {

/// The keys of data_options that all formats of images share: see docs/data.md.
struct ImageOptions {
  /// Resizes to height x width; without a width, the shorter side to `height` and the longer to
  /// ⌊height · longer / shorter⌋. 0: not at all.
  int64_t resize_height = 0, resize_width = 0;
  int64_t pad = 0;       ///< Black pixels added on each side.
  bool crop = false;     ///< Cuts the model's size out, instead of refusing larger images.
  bool flip = false;     ///< With augment: mirrors every second image, by chance.
  bool augment = false;  ///< Training: crops at random places, flips.
  /// A channel each, of pixels / 255. Empty: measured.
  std::vector<double> mean, deviation;
  int64_t decode_threads = 0;  ///< 0: the format's default.
  bool skip_bad = false;       ///< Leaves bad files out, instead of refusing them.

  /// Refuses unknown keys, wrong types and numbers of channels. `channels`: of the model's input;
  /// `files`: the images are files of their own, which may be skipped.
  static ImageOptions Read(const JsonView& options, int64_t channels, bool files);
};

/// An image of bytes: that of channel c at (y, x) is data[c·channel + y·row + x·column].
struct Pixels {
  const uint8_t* data = nullptr;
  int64_t height = 0, width = 0, channels = 0;
  int64_t channel = 0, row = 0, column = 0;
};
/// Pixels that lie as [channels, height, width], and as [height, width, channels].
Pixels PlanarPixels(const uint8_t* data, int64_t channels, int64_t height, int64_t width);
Pixels InterleavedPixels(const uint8_t* data, int64_t channels, int64_t height, int64_t width);

/// Whether an image of height x width can be made to one of `wanted`, [channels, height, width].
bool FitsAfter(const ImageOptions& options, int64_t height, int64_t width, const Shape& wanted);
/// What an image of shape `image` is before it is cropped, for complaints: "[1, 30, 30] after
/// resize and pad".
std::string ShapeAfter(const ImageOptions& options, const Shape& image);

/// Of pixels / 255, a channel each.
struct Normalisation {
  std::vector<double> mean, deviation;

  /// "mean 0.2860, deviation 0.3530"; several channels in brackets.
  std::string Describe() const;
};

/// Measures mean and deviation over all pixels of some images. Exact whatever the order: counts
/// each of the 256 values that a byte can have.
class PixelStatistics {
 public:
  explicit PixelStatistics(int64_t channels) : counts_(static_cast<size_t>(channels)) {}
  void Add(const Pixels& pixels);
  Normalisation Result() const;

 private:
  std::vector<std::array<int64_t, 256>> counts_;
};

/// For each of n positions, the pixels of a line that it is a weighted sum of.
struct Taps {
  std::vector<int32_t> first, count;  ///< count 0: outside the image.
  std::vector<float> weights;         ///< `stride` for each position.
  int64_t stride = 0;
};

/// What one thread needs to transform images. Grows to the largest and stays.
struct TransformScratch {
  Taps across, down;
  std::vector<float> lines;
};

/// Makes the model's input of an image: resize, pad, crop, flip, then (pixel / 255 - mean) /
/// deviation (a deviation of 0 divides by 1). Thread-safe.
///
/// Resizing is bilinear with antialias, the filter that PIL and torchvision use: with s = source /
/// target and r = max(s, 1), target position i is the sum of the source pixels k weighted by
/// max(0, 1 - |k + 1/2 - (i + 1/2)·s| / r), weights divided by their sum; across, then down.
/// Differs: PIL rounds to bytes after each direction, here nothing is rounded.
class ImageTransform {
 public:
  /// `shape`: [channels, height, width] of the model's input.
  ImageTransform(const ImageOptions& options, const Shape& shape,
                 const Normalisation& normalisation, uint64_t seed);

  bool Fits(const Pixels& pixels) const {
    return FitsAfter(options_, pixels.height, pixels.width, shape_);
  }

  /// Writes the model's input, dense. The middle is cropped. The image Fits.
  void Apply(const Pixels& pixels, TransformScratch& scratch, float* out) const;
  /// For training: what `augment` asks for is drawn from (seed, epoch, sample) alone.
  void Apply(const Pixels& pixels, uint64_t epoch, uint64_t sample, TransformScratch& scratch,
             float* out) const;

 private:
  struct Window {
    int64_t top, left;  ///< Of the crop in the padded image.
    bool mirrored;
  };
  void Write(const Pixels& pixels, const Window& window, TransformScratch& scratch,
             float* out) const;
  void Copy(const Pixels& pixels, const Window& window, float* out) const;
  void Resample(const Pixels& pixels, const Window& window, TransformScratch& scratch,
                float* out) const;

  ImageOptions options_;
  Shape shape_;
  int64_t height_, width_;
  uint64_t key_;
  std::vector<std::array<float, 256>> value_;  ///< Of each byte, normalised, a channel each.
  std::vector<float> scale_, shift_;           ///< The same for a resized pixel.
};

}  // namespace pd
