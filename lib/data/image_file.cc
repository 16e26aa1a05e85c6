#include "data/image_file.h"

#include <png.h>
#include <turbojpeg.h>
#include <zlib.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/unique_handle.h"
#include "data/sample_file.h"

namespace pd {
namespace {

constexpr int64_t kMaxPixels = int64_t{1} << 27;
constexpr size_t kHead = 4096;  // of a file: enough for most JPEG headers
constexpr size_t kTail = 4096;  // where the end mark is looked for: some programs write behind it
constexpr std::string_view kPngStart = "\x89PNG\r\n\x1a\n";
constexpr std::string_view kPngEnd = "IEND";
constexpr std::string_view kJpegStart = "\xff\xd8\xff";
constexpr std::string_view kJpegEnd = "\xff\xd9";

struct JpegTraits {
  using Handle = tjhandle;
  static void Destroy(Handle handle) { tjDestroy(handle); }
};

void ReadPart(const SampleFile& file, size_t at, size_t count, std::vector<uint8_t>& out) {
  out.resize(count);
  file.Read(at, out.data(), count);
}

std::string_view TextOf(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
bool IsPng(const std::vector<uint8_t>& bytes) { return TextOf(bytes).starts_with(kPngStart); }
bool IsJpeg(const std::vector<uint8_t>& bytes) { return TextOf(bytes).starts_with(kJpegStart); }

[[noreturn]] void Refuse(const std::string& path, std::string_view what) {
  Throw(ErrorCode::kInvalidInput, "{}: {}", path, Printable(what));
}

uint32_t BigEndian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// The first chunk of a PNG file, IHDR, lies at a fixed place.
ImageInfo PngHeader(const std::string& path, const std::vector<uint8_t>& bytes) {
  constexpr size_t kLength = 8, kType = 12, kCrc = 29, kEnd = 33;
  if (bytes.size() < kEnd || BigEndian(&bytes[kLength]) != 13 ||
      TextOf(bytes).substr(kType, 4) != "IHDR" ||
      crc32(0, &bytes[kType], kCrc - kType) != BigEndian(&bytes[kCrc])) {
    Refuse(path, "expected a PNG header (IHDR) with its checksum, found damage");
  }
  return {BigEndian(&bytes[20]), BigEndian(&bytes[16]), (bytes[25] & PNG_COLOR_MASK_ALPHA) != 0};
}

// What libpng's callbacks share with the caller. Plain data: libpng leaves by longjmp.
struct PngState {
  const uint8_t* bytes;
  size_t left;
  uint8_t* out;
  png_uint_32 height;
  size_t row_bytes;  ///< Of the image as it is decoded: those of `channels`.
  int channels;      ///< Wanted: 1 or 3.
  bool gather_grey;  ///< Decodes RGB although grey is wanted.
  char message[160];
};

void PngRead(png_structp png, png_bytep out, size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state->left) png_error(png, "the file ends too early");
  std::memcpy(out, state->bytes, count);
  state->bytes += count;
  state->left -= count;
}

[[noreturn]] void PngFail(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::strncpy(state->message, message, sizeof state->message - 1);
  png_longjmp(png, 1);
}

void PngWarn(png_structp, png_const_charp) {}  // about chunks that are not looked at

void DecodePngRows(png_structp png, png_infop info, PngState* state) {
  png_read_info(png, info);
  const int color = png_get_color_type(png, info);
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (color == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  if (png_get_bit_depth(png, info) == 16) png_set_scale_16(png);
  png_set_strip_alpha(png);  // a palette may have one, too
  const bool colored = (color & PNG_COLOR_MASK_COLOR) != 0;
  if (!colored && state->channels == 3) png_set_gray_to_rgb(png);
  state->gather_grey = colored && state->channels == 1;
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  state->row_bytes = png_get_rowbytes(png, info);
  const size_t width = png_get_image_width(png, info);
  if (state->row_bytes !=
          width * (state->gather_grey ? 3U : static_cast<size_t>(state->channels)) ||
      png_get_image_height(png, info) != state->height) {
    png_error(png, "the header changed");
  }
  for (int pass = 0; pass < passes; ++pass) {
    for (png_uint_32 y = 0; y < state->height; ++y) {
      png_read_row(png, state->out + y * state->row_bytes, nullptr);
    }
  }
  png_read_end(png, nullptr);
}

// No object with a destructor lives here or in what this calls: libpng leaves by longjmp.
bool TryDecodePng(png_structp png, png_infop info, PngState* state) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  DecodePngRows(png, info, state);
  return true;
}

// Luma as ITU-R BT.601 weighs the colours, rounded; the weights add up to 2¹⁶.
void GatherGrey(uint8_t* pixels, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* rgb = pixels + 3 * i;
    pixels[i] =
        static_cast<uint8_t>((19595U * rgb[0] + 38470U * rgb[1] + 7471U * rgb[2] + 32768U) >> 16);
  }
}

}  // namespace

struct ImageFileReader::Impl {
  UniqueHandle<JpegTraits> jpeg{tjInitDecompress()};
  std::vector<uint8_t> file, pixels;

  ImageInfo Inspect(const SampleFile& from);
  bool JpegHeader(const std::string& path, bool whole, ImageInfo& info);
  void DecodePng(const std::string& path, const ImageInfo& info, int64_t channels);
  void DecodeJpeg(const std::string& path, const ImageInfo& info, int64_t channels);
};

// False where the header goes on after the bytes that are there.
bool ImageFileReader::Impl::JpegHeader(const std::string& path, bool whole, ImageInfo& info) {
  int width = 0, height = 0, sampling = 0, colors = -1;
  const bool read = tjDecompressHeader3(jpeg.get(), file.data(), file.size(), &width, &height,
                                        &sampling, &colors) == 0;
  if (!read || width == 0 || height == 0) {  // a header without an image counts as read
    if (!whole) return false;
    Refuse(path, fmt::format("damaged or unsupported JPEG: {}",
                             read ? "no image in it" : tjGetErrorStr2(jpeg.get())));
  }
  if (colors == TJCS_CMYK || colors == TJCS_YCCK) {
    Refuse(path, "expected a grey or RGB JPEG, found CMYK");
  }
  info = {height, width, false};
  return true;
}

ImageFileReader::ImageFileReader() : impl_(std::make_unique<Impl>()) {
  PD_CHECK(impl_->jpeg.get() != nullptr, "libjpeg-turbo: {}", tjGetErrorStr2(nullptr));
}

ImageFileReader::~ImageFileReader() = default;

ImageInfo ImageFileReader::Inspect(const std::string& path) {
  return impl_->Inspect(SampleFile(path));
}

// Leaves the head of the file in `file`.
ImageInfo ImageFileReader::Impl::Inspect(const SampleFile& from) {
  const std::string& path = from.path();
  const size_t tail = std::min(kTail, from.size());
  const auto ends = [&](std::string_view mark) {
    ReadPart(from, from.size() - tail, tail, file);
    if (TextOf(file).find(mark) != std::string_view::npos) return true;
    ReadPart(from, 0, from.size(), file);  // some have much behind their end
    return TextOf(file).find(mark) != std::string_view::npos;
  };
  ReadPart(from, 0, std::min(kHead, from.size()), file);
  const bool is_png = IsPng(file), is_jpeg = IsJpeg(file);
  const bool png_ends = is_png && ends(kPngEnd);
  const bool jpeg_ends = is_jpeg && ends(kJpegEnd);
  ReadPart(from, 0, std::min(kHead, from.size()), file);
  ImageInfo info;
  if (IsPng(file)) {
    info = PngHeader(path, file);
    if (!png_ends) Refuse(path, "expected the end of a PNG (IEND), found the end of the file");
  } else if (IsJpeg(file)) {
    if (!jpeg_ends) Refuse(path, "expected the end of a JPEG (ff d9), found the end of the file");
    if (!JpegHeader(path, file.size() == from.size(), info)) {
      ReadPart(from, 0, from.size(), file);
      JpegHeader(path, true, info);
    }
  } else {
    Refuse(path, file.empty() ? "expected a PNG or JPEG file, found an empty one"
                              : "expected a PNG or JPEG file, found something else");
  }
  PD_REQUIRE(info.height > 0 && info.width > 0 && info.height <= kMaxPixels / info.width,
             "{}: expected 1 to {} pixels, found {} x {}", path, kMaxPixels, info.height,
             info.width);
  return info;
}

void ImageFileReader::Impl::DecodePng(const std::string& path, const ImageInfo& info,
                                      int64_t channels) {
  PngState state = {};
  state.bytes = file.data();
  state.left = file.size();
  state.out = pixels.data();
  state.height = static_cast<png_uint_32>(info.height);
  state.channels = static_cast<int>(channels);
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, PngFail, PngWarn);
  PD_CHECK(png != nullptr, "libpng {}", PNG_LIBPNG_VER_STRING);
  png_infop header = png_create_info_struct(png);
  png_set_read_fn(png, &state, PngRead);
  const bool decoded = header != nullptr && TryDecodePng(png, header, &state);
  png_destroy_read_struct(&png, &header, nullptr);
  if (!decoded) Refuse(path, fmt::format("damaged PNG: {}", state.message));
  if (state.gather_grey) GatherGrey(pixels.data(), static_cast<size_t>(info.height * info.width));
}

void ImageFileReader::Impl::DecodeJpeg(const std::string& path, const ImageInfo& info,
                                       int64_t channels) {
  const int failed = tjDecompress2(jpeg.get(), file.data(), file.size(), pixels.data(),
                                   static_cast<int>(info.width), 0, static_cast<int>(info.height),
                                   channels == 1 ? TJPF_GRAY : TJPF_RGB,
                                   TJFLAG_ACCURATEDCT | TJFLAG_STOPONWARNING);
  if (failed != 0) Refuse(path, fmt::format("damaged JPEG: {}", tjGetErrorStr2(jpeg.get())));
}

Pixels ImageFileReader::Decode(const std::string& path, int64_t channels) {
  PD_CHECK(channels == 1 || channels == 3, "{} channels", channels);
  const SampleFile from(path);
  const ImageInfo info = impl_->Inspect(from);
  ReadPart(from, 0, from.size(), impl_->file);
  // Colours may be decoded where grey is wanted.
  impl_->pixels.resize(static_cast<size_t>(info.height * info.width * 3));
  if (IsPng(impl_->file)) {
    impl_->DecodePng(path, info, channels);
  } else {
    impl_->DecodeJpeg(path, info, channels);
  }
  return InterleavedPixels(impl_->pixels.data(), channels, info.height, info.width);
}

}  // namespace pd
