#include "data/transform.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"

namespace pd {
namespace {

constexpr int64_t kMaxSide = 1 << 16;

std::vector<double> ReadChannels(const JsonView& view, int64_t channels, double min) {
  std::vector<double> values;
  if (view.IsNumber()) {
    values.assign(static_cast<size_t>(channels), view.Number(min, 1e6));
    return values;
  }
  if (!view.IsArray() || static_cast<int64_t>(view.Items().size()) != channels) {
    view.Fail(
        fmt::format("a number, or an array of {}, one a channel of the model's input", channels));
  }
  for (const JsonView& item : view.Items()) values.push_back(item.Number(min, 1e6));
  return values;
}

// A number below `bound` from 32 random bits.
int64_t Below(uint32_t bits, int64_t bound) {
  return static_cast<int64_t>(uint64_t{bits} * static_cast<uint64_t>(bound) >> 32);
}

// The sources of `count` positions of a line, from `offset` on in a line of `source` pixels that
// was resized to `target` and padded by `pad`.
struct LineWindow {
  int64_t source, target, pad, offset, count;
  bool mirrored;
};

void FillTaps(const LineWindow& line, Taps& taps) {
  const double scale = static_cast<double>(line.source) / static_cast<double>(line.target);
  const double reach = std::max(scale, 1.0);
  const auto count = static_cast<size_t>(line.count);
  taps.stride = static_cast<int64_t>(std::ceil(reach)) * 2 + 1;
  taps.first.assign(count, 0);
  taps.count.assign(count, 0);
  taps.weights.resize(count * static_cast<size_t>(taps.stride));
  for (int64_t i = 0; i < line.count; ++i) {
    const int64_t place = line.offset + (line.mirrored ? line.count - 1 - i : i) - line.pad;
    if (place < 0 || place >= line.target) continue;
    const double centre = (static_cast<double>(place) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(centre - reach + 0.5));
    const auto end = std::min(line.source, static_cast<int64_t>(centre + reach + 0.5));
    const auto weight = [&](int64_t k) {
      return std::max(0.0, 1 - std::abs((static_cast<double>(k) + 0.5 - centre) / reach));
    };
    double sum = 0;
    for (int64_t k = first; k < end; ++k) sum += weight(k);
    float* weights = taps.weights.data() + i * taps.stride;
    for (int64_t k = first; k < end; ++k) weights[k - first] = static_cast<float>(weight(k) / sum);
    taps.first[static_cast<size_t>(i)] = static_cast<int32_t>(first);
    taps.count[static_cast<size_t>(i)] = static_cast<int32_t>(end - first);
  }
}

struct Size {
  int64_t height, width;
};

Size Resized(const ImageOptions& options, int64_t height, int64_t width) {
  const int64_t side = options.resize_height;
  if (side == 0) return {height, width};
  if (options.resize_width > 0) return {side, options.resize_width};
  return height <= width ? Size{side, side * width / height} : Size{side * height / width, side};
}

Size Padded(const ImageOptions& options, int64_t height, int64_t width) {
  const Size size = Resized(options, height, width);
  return {size.height + 2 * options.pad, size.width + 2 * options.pad};
}

}  // namespace

ImageOptions ImageOptions::Read(const JsonView& json, int64_t channels, bool files) {
  std::vector<std::string_view> keys = {"resize",  "pad",  "crop",      "flip",
                                        "augment", "mean", "deviation", "decode_threads"};
  if (files) keys.push_back("skip_bad");
  json.CheckKeys(keys, files ? "image folders" : "images");
  ImageOptions options;
  if (const auto view = json.Find("resize")) {
    if (view->IsArray()) {
      const std::vector<JsonView> sides = view->Items();
      if (sides.size() != 2) view->Fail("the shorter side in pixels, or [height, width]");
      options.resize_height = sides[0].Int(1, kMaxSide);
      options.resize_width = sides[1].Int(1, kMaxSide);
    } else {
      options.resize_height = view->Int(1, kMaxSide);
    }
  }
  if (const auto view = json.Find("pad")) options.pad = view->Int(0, kMaxSide);
  if (const auto view = json.Find("crop")) options.crop = view->Bool();
  if (const auto view = json.Find("augment")) options.augment = view->Bool();
  if (const auto view = json.Find("flip")) {
    options.flip = view->Bool();
    if (options.flip && !json.Find("augment")) {
      view->Fail("false, or \"augment\": true beside it: only augmentation flips");
    }
  }
  if (const auto view = json.Find("mean")) options.mean = ReadChannels(*view, channels, -1e6);
  if (const auto view = json.Find("deviation")) {
    options.deviation = ReadChannels(*view, channels, 1e-6);
  }
  if (options.mean.empty() != options.deviation.empty()) {
    json.Fail("both of mean and deviation, or none (measured)", "one of them");
  }
  if (const auto view = json.Find("skip_bad")) options.skip_bad = view->Bool();
  if (const auto view = json.Find("decode_threads")) options.decode_threads = view->Int(1, 256);
  return options;
}

bool FitsAfter(const ImageOptions& options, int64_t height, int64_t width, const Shape& wanted) {
  const Size size = Padded(options, height, width);
  if (options.crop) return size.height >= wanted[1] && size.width >= wanted[2];
  return size.height == wanted[1] && size.width == wanted[2];
}

std::string ShapeAfter(const ImageOptions& options, const Shape& image) {
  const Size size = Padded(options, image[1], image[2]);
  std::string text = ToString({image[0], size.height, size.width});
  if (options.resize_height > 0 || options.pad > 0) text += " after ";
  if (options.resize_height > 0) text += options.pad > 0 ? "resize and pad" : "resize";
  if (options.resize_height == 0 && options.pad > 0) text += "pad";
  return text;
}

Pixels PlanarPixels(const uint8_t* data, int64_t channels, int64_t height, int64_t width) {
  return {data, height, width, channels, height * width, width, 1};
}

Pixels InterleavedPixels(const uint8_t* data, int64_t channels, int64_t height, int64_t width) {
  return {data, height, width, channels, 1, width * channels, channels};
}

std::string Normalisation::Describe() const {
  const auto text = [](const std::vector<double>& values) {
    const bool one = values.size() == 1;
    return fmt::format("{}{:.4f}{}", one ? "" : "[", fmt::join(values, ", "), one ? "" : "]");
  };
  return fmt::format("mean {}, deviation {}", text(mean), text(deviation));
}

void PixelStatistics::Add(const Pixels& pixels) {
  PD_CHECK(pixels.channels == static_cast<int64_t>(counts_.size()), "{} channels", pixels.channels);
  for (size_t c = 0; c < counts_.size(); ++c) {
    const uint8_t* plane = pixels.data + static_cast<int64_t>(c) * pixels.channel;
    for (int64_t y = 0; y < pixels.height; ++y) {
      const uint8_t* row = plane + y * pixels.row;
      for (int64_t x = 0; x < pixels.width; ++x) ++counts_[c][row[x * pixels.column]];
    }
  }
}

Normalisation PixelStatistics::Result() const {
  Normalisation result;
  for (const std::array<int64_t, 256>& counts : counts_) {
    double total = 0, mean = 0, variance = 0;
    for (const int64_t count : counts) total += static_cast<double>(count);
    for (int v = 0; v < 256; ++v) mean += static_cast<double>(counts[v] * v) / 255 / total;
    for (int v = 0; v < 256; ++v) {
      const double distance = v / 255.0 - mean;
      variance += static_cast<double>(counts[v]) * distance * distance / total;
    }
    result.mean.push_back(mean);
    result.deviation.push_back(std::sqrt(variance));
  }
  return result;
}

ImageTransform::ImageTransform(const ImageOptions& options, const Shape& shape,
                               const Normalisation& normalisation, uint64_t seed)
    : options_(options),
      shape_(shape),
      height_(shape.at(1)),
      width_(shape.at(2)),
      key_(HashBytes("image augmentation", seed)) {
  for (size_t c = 0; c < static_cast<size_t>(shape[0]); ++c) {
    const double mean = normalisation.mean[c];
    const double divisor = normalisation.deviation[c] > 0 ? normalisation.deviation[c] : 1;
    value_.emplace_back();
    for (int v = 0; v < 256; ++v) {
      value_[c][v] = static_cast<float>((v / 255.0 - mean) / divisor);
    }
    scale_.push_back(static_cast<float>(1 / (255 * divisor)));
    shift_.push_back(static_cast<float>(-mean / divisor));
  }
}

void ImageTransform::Apply(const Pixels& pixels, TransformScratch& scratch, float* out) const {
  const Size size = Padded(options_, pixels.height, pixels.width);
  Write(pixels, {(size.height - height_) / 2, (size.width - width_) / 2, false}, scratch, out);
}

void ImageTransform::Apply(const Pixels& pixels, uint64_t epoch, uint64_t sample,
                           TransformScratch& scratch, float* out) const {
  if (!options_.augment) return Apply(pixels, scratch, out);
  const Size size = Padded(options_, pixels.height, pixels.width);
  const auto bits = Philox(key_, epoch, sample);
  const Window window = {Below(bits[0], size.height - height_ + 1),
                         Below(bits[1], size.width - width_ + 1),
                         options_.flip && (bits[2] >> 31) != 0};
  Write(pixels, window, scratch, out);
}

void ImageTransform::Write(const Pixels& pixels, const Window& window, TransformScratch& scratch,
                           float* out) const {
  const Size size = Resized(options_, pixels.height, pixels.width);
  if (size.height == pixels.height && size.width == pixels.width) {
    Copy(pixels, window, out);
  } else {
    Resample(pixels, window, scratch, out);
  }
}

void ImageTransform::Copy(const Pixels& pixels, const Window& window, float* out) const {
  const int64_t top = window.top - options_.pad, left = window.left - options_.pad;
  for (int64_t c = 0; c < shape_[0]; ++c) {
    const std::array<float, 256>& value = value_[static_cast<size_t>(c)];
    for (int64_t y = 0; y < height_; ++y, out += width_) {
      const int64_t source_y = top + y;
      if (source_y < 0 || source_y >= pixels.height) {
        std::fill(out, out + width_, value[0]);
        continue;
      }
      const uint8_t* row = pixels.data + c * pixels.channel + source_y * pixels.row;
      for (int64_t x = 0; x < width_; ++x) {
        const int64_t source_x = left + (window.mirrored ? width_ - 1 - x : x);
        const bool inside = source_x >= 0 && source_x < pixels.width;
        out[x] = value[inside ? row[source_x * pixels.column] : 0];
      }
    }
  }
}

// Only what the window shows is computed: across for the rows that it needs, then down.
void ImageTransform::Resample(const Pixels& pixels, const Window& window, TransformScratch& scratch,
                              float* out) const {
  const Size size = Resized(options_, pixels.height, pixels.width);
  Taps& across = scratch.across;
  Taps& down = scratch.down;
  FillTaps({pixels.width, size.width, options_.pad, window.left, width_, window.mirrored}, across);
  FillTaps({pixels.height, size.height, options_.pad, window.top, height_, false}, down);
  int64_t first = pixels.height, end = 0;
  for (size_t y = 0; y < down.first.size(); ++y) {
    if (down.count[y] == 0) continue;
    first = std::min<int64_t>(first, down.first[y]);
    end = std::max<int64_t>(end, down.first[y] + down.count[y]);
  }
  const int64_t rows = std::max<int64_t>(0, end - first);
  scratch.lines.resize(static_cast<size_t>(std::max<int64_t>(1, rows) * width_));
  for (int64_t c = 0; c < shape_[0]; ++c) {
    for (int64_t y = 0; y < rows; ++y) {
      const uint8_t* row = pixels.data + c * pixels.channel + (first + y) * pixels.row;
      float* line = scratch.lines.data() + y * width_;
      for (int64_t x = 0; x < width_; ++x) {
        const float* weights = across.weights.data() + x * across.stride;
        const uint8_t* source = row + across.first[static_cast<size_t>(x)] * pixels.column;
        float sum = 0;
        for (int32_t k = 0; k < across.count[static_cast<size_t>(x)]; ++k) {
          sum += weights[k] * static_cast<float>(source[k * pixels.column]);
        }
        line[x] = sum;
      }
    }
    const float scale = scale_[static_cast<size_t>(c)], shift = shift_[static_cast<size_t>(c)];
    for (int64_t y = 0; y < height_; ++y, out += width_) {
      const float* weights = down.weights.data() + y * down.stride;
      std::fill(out, out + width_, 0.0F);
      for (int32_t k = 0; k < down.count[static_cast<size_t>(y)]; ++k) {
        const float* line =
            scratch.lines.data() + (down.first[static_cast<size_t>(y)] - first + k) * width_;
        for (int64_t x = 0; x < width_; ++x) out[x] += weights[k] * line[x];
      }
      for (int64_t x = 0; x < width_; ++x) out[x] = out[x] * scale + shift;
    }
  }
}

}  // namespace pd
