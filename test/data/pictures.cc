#include "pictures.h"

#include <png.h>
#include <turbojpeg.h>

#include "support/catch.h"

namespace pd {

std::string EncodePng(const Picture& picture, const PngKind& kind) {
  std::string file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp p, png_bytep data, size_t count) {
        static_cast<std::string*>(png_get_io_ptr(p))
            ->append(reinterpret_cast<const char*>(data), count);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(picture.width),
               static_cast<png_uint_32>(picture.height), kind.depth, kind.color_type,
               kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> colors;
  for (size_t i = 0; i + 2 < kind.palette.size(); i += 3) {
    colors.push_back({kind.palette[i], kind.palette[i + 1], kind.palette[i + 2]});
  }
  if (!colors.empty()) png_set_PLTE(png, info, colors.data(), static_cast<int>(colors.size()));
  if (!kind.palette_alpha.empty()) {
    png_set_tRNS(png, info, kind.palette_alpha.data(), static_cast<int>(kind.palette_alpha.size()),
                 nullptr);
  }
  png_write_info(png, info);
  const size_t row_bytes = png_get_rowbytes(png, info);
  REQUIRE(picture.bytes.size() == row_bytes * static_cast<size_t>(picture.height));
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < picture.height; ++y) {
    rows.push_back(const_cast<png_bytep>(picture.bytes.data()) +
                   static_cast<size_t>(y) * row_bytes);
  }
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

std::string EncodeJpeg(const Picture& picture, int format, int quality, int flags) {
  tjhandle handle = tjInitCompress();
  unsigned char* packed = nullptr;
  unsigned long size = 0;  // NOLINT: TurboJPEG's type
  REQUIRE(tjCompress2(handle, picture.bytes.data(), static_cast<int>(picture.width), 0,
                      static_cast<int>(picture.height), format, &packed, &size,
                      format == TJPF_GRAY ? TJSAMP_GRAY : TJSAMP_444, quality, flags) == 0);
  std::string file(reinterpret_cast<const char*>(packed), size);
  tjFree(packed);
  tjDestroy(handle);
  return file;
}

Picture Gradient(int64_t height, int64_t width, int channels) {
  Picture picture = {height, width, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        picture.bytes.push_back(static_cast<uint8_t>(20 + 60 * c + 3 * y + 2 * x));
      }
    }
  }
  return picture;
}

}  // namespace pd
