#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/transform.h"

namespace pd {

/// What the header of an image file tells.
struct ImageInfo {
  int64_t height = 0, width = 0;
  bool alpha = false;  ///< Has an alpha channel, which decoding drops.
};

/// Reads PNG and JPEG files, which their first bytes tell apart, not their names. PNG: every kind
/// that there is; 16 bits are rounded to 8, palettes looked up, gamma and colour profiles ignored.
/// JPEG: grey, YCbCr and RGB, baseline and progressive; CMYK is refused; EXIF, its orientation too,
/// is ignored. Grey of colours is luma, 0.299 R + 0.587 G + 0.114 B; colours of grey are the grey
/// thrice. Buffers grow to the largest image and stay. One thread at a time.
///
/// Refuses (kInvalidInput, with the path) damaged and unknown files, and more than 2²⁷ pixels;
/// kIo where the system cannot read the file.
class ImageFileReader {
 public:
  ImageFileReader();
  ~ImageFileReader();
  ImageFileReader(const ImageFileReader&) = delete;
  ImageFileReader& operator=(const ImageFileReader&) = delete;

  /// Looks at the header and at the end of the file, whose mark tells that the file is whole; what
  /// lies between is not read.
  ImageInfo Inspect(const std::string& path);
  /// The whole image with `channels` (1: grey, 3: RGB), valid until the next call. Whatever the
  /// library complains about is refused.
  Pixels Decode(const std::string& path, int64_t channels);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pd
