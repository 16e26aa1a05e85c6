#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pd {

/// An image file's content to be written: rows of packed pixels as the kind of file has them.
struct Picture {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> bytes;
};

/// PNG's colour types, depths and the rest, as libpng names them.
struct PngKind {
  int color_type = 0, depth = 8;
  bool interlaced = false;
  std::vector<uint8_t> palette = {};        ///< RGB, three bytes an entry.
  std::vector<uint8_t> palette_alpha = {};  ///< One byte an entry.
};
std::string EncodePng(const Picture& picture, const PngKind& kind);

/// `format` and `flags` as TurboJPEG's (TJPF_RGB, …; TJFLAG_PROGRESSIVE); colours are not
/// subsampled.
std::string EncodeJpeg(const Picture& picture, int format, int quality = 100, int flags = 0);

/// Smooth colours: channel c at (y, x) is 20 + 60 c + 3 y + 2 x.
Picture Gradient(int64_t height, int64_t width, int channels);

}  // namespace pd
