#include "data/transform.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "files.h"
#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

ImageOptions Options(const std::string& json, int64_t channels = 3) {
  return ImageOptions::Read(JsonView::Parse(json, "options"), channels, true);
}

// Normalised by mean 0 and deviation 1/255, a value is that of the byte.
Normalisation Bytes(int64_t channels) {
  const auto count = static_cast<size_t>(channels);
  return {std::vector<double>(count, 0.0), std::vector<double>(count, 1 / 255.0)};
}

std::vector<uint8_t> Noise(size_t count) {
  std::vector<uint8_t> bytes(count);
  uint32_t state = 12345;
  for (uint8_t& byte : bytes)
    byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

// The definition in transform.h, one output pixel at a time, in doubles.
double Weight(int64_t source, int64_t target, int64_t i, int64_t k) {
  const double s = static_cast<double>(source) / static_cast<double>(target), r = std::max(s, 1.0);
  const auto raw = [&](int64_t j) {
    return std::max(
        0.0, 1 - std::abs(static_cast<double>(j) + 0.5 - (static_cast<double>(i) + 0.5) * s) / r);
  };
  double sum = 0;
  for (int64_t j = 0; j < source; ++j) sum += raw(j);
  return raw(k) / sum;
}

double ResizedAt(const Pixels& p, int64_t height, int64_t width, int64_t c, int64_t y, int64_t x) {
  double sum = 0;
  for (int64_t j = 0; j < p.height; ++j) {
    for (int64_t k = 0; k < p.width; ++k) {
      const uint8_t byte = p.data[c * p.channel + j * p.row + k * p.column];
      sum += Weight(p.height, height, y, j) * Weight(p.width, width, x, k) * byte;
    }
  }
  return sum;
}

std::vector<float> Transformed(const ImageOptions& options, const Shape& shape,
                               const Pixels& pixels) {
  const ImageTransform transform(options, shape, Bytes(shape[0]), 1);
  TransformScratch scratch;
  std::vector<float> out(static_cast<size_t>(Elements(shape)), -1);
  REQUIRE(transform.Fits(pixels));
  transform.Apply(pixels, scratch, out.data());
  return out;
}

TEST_CASE("resizing equals the plain formula, up and down, in both layouts") {
  struct Case {
    int64_t height, width;
    Shape shape;
    const char* options;
  };
  const Case cases[] = {
      {13, 9, {3, 5, 4}, R"({"resize": [5, 4]})"},    {4, 5, {3, 11, 7}, R"({"resize": [11, 7]})"},
      {10, 10, {3, 10, 3}, R"({"resize": [10, 3]})"}, {1, 1, {3, 4, 4}, R"({"resize": 4})"},
      {12, 18, {3, 6, 9}, R"({"resize": 6})"},        {18, 12, {3, 9, 6}, R"({"resize": 6})"},
      {30, 7, {3, 12, 3}, R"({"resize": 3})"}};  // ⌊3 · 30 / 7⌋ = 12
  for (const Case& c : cases) {
    CAPTURE(c.options, c.height, c.width);
    const std::vector<uint8_t> bytes = Noise(static_cast<size_t>(3 * c.height * c.width));
    for (const Pixels& pixels : {PlanarPixels(bytes.data(), 3, c.height, c.width),
                                 InterleavedPixels(bytes.data(), 3, c.height, c.width)}) {
      const std::vector<float> out = Transformed(Options(c.options), c.shape, pixels);
      for (int64_t i = 0; i < Elements(c.shape); ++i) {
        const int64_t h = c.shape[1], w = c.shape[2];
        REQUIRE(out[i] ==
                Approx(ResizedAt(pixels, h, w, i / (h * w), i / w % h, i % w)).margin(1e-3));
      }
    }
  }
}

TEST_CASE("resizing a plain area keeps its value, and a step of halves averages pairs") {
  const std::vector<uint8_t> grey(100, 77);
  for (const float v : Transformed(Options(R"({"resize": [7, 3]})", 1), {1, 7, 3},
                                   PlanarPixels(grey.data(), 1, 10, 10))) {
    CHECK(v == Approx(77));
  }
  // s = 2, r = 2: weights 1/8, 3/8, 3/8, 1/8 inside; at the edge 3/7, 3/7, 1/7.
  const std::vector<uint8_t> line = {0, 0, 0, 80, 80, 80, 80, 80};
  const std::vector<float> out = Transformed(Options(R"({"resize": [1, 4]})", 1), {1, 1, 4},
                                             PlanarPixels(line.data(), 1, 1, 8));
  CHECK(out[0] == Approx(0).margin(1e-5));
  CHECK(out[1] == Approx(80 * (3 + 1) / 8.0));
  CHECK(out[2] == Approx(80));
  CHECK(out[3] == Approx(80));
}

TEST_CASE("the middle is cropped, padding is black, and channels are normalised each by its own") {
  std::vector<uint8_t> bytes(2 * 5 * 6);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i + 1);
  const Pixels pixels = PlanarPixels(bytes.data(), 2, 5, 6);
  const std::vector<float> crop = Transformed(Options(R"({"crop": true})", 2), {2, 3, 2}, pixels);
  for (int64_t i = 0; i < 12; ++i) {
    const int64_t c = i / 6, y = i / 2 % 3 + 1, x = i % 2 + 2;
    CHECK(crop[i] == Approx(1 + c * 30 + y * 6 + x));
  }
  const ImageOptions pad = Options(R"({"pad": 2})", 2);
  const ImageTransform transform(pad, {2, 9, 10}, {{0.5, 0.25}, {0.5, 0.125}}, 1);
  TransformScratch scratch;
  std::vector<float> out(180);
  transform.Apply(pixels, scratch, out.data());
  for (int64_t i = 0; i < 180; ++i) {
    const int64_t c = i / 90, y = i / 10 % 9 - 2, x = i % 10 - 2;
    const bool inside = y >= 0 && y < 5 && x >= 0 && x < 6;
    const double byte = inside ? static_cast<double>(1 + c * 30 + y * 6 + x) : 0;
    CHECK(out[i] == Approx((byte / 255 - (c == 0 ? 0.5 : 0.25)) / (c == 0 ? 0.5 : 0.125)));
  }
}

TEST_CASE("resize, pad and crop together show the window of the padded resized image") {
  const std::vector<uint8_t> bytes = Noise(20 * 16);
  const Pixels pixels = PlanarPixels(bytes.data(), 1, 20, 16);
  const ImageOptions options = Options(R"({"resize": 8, "pad": 3, "crop": true})", 1);
  const std::vector<float> out = Transformed(options, {1, 12, 14}, pixels);  // of 16 x 14
  for (int64_t y = 0; y < 12; ++y) {
    for (int64_t x = 0; x < 14; ++x) {
      const int64_t ry = y + 2 - 3, rx = x - 3;
      const bool inside = ry >= 0 && ry < 10 && rx >= 0 && rx < 8;
      CHECK(out[y * 14 + x] ==
            Approx(inside ? ResizedAt(pixels, 10, 8, 0, ry, rx) : 0).margin(1e-3));
    }
  }
}

TEST_CASE("augmentation depends on seed, epoch and sample only, and reaches every crop and flip") {
  // Pixel (y, x) is 16 y + x, so that an output tells its window.
  std::vector<uint8_t> bytes(64);
  for (size_t i = 0; i < 64; ++i) bytes[i] = static_cast<uint8_t>(16 * (i / 8) + i % 8);
  const Pixels pixels = PlanarPixels(bytes.data(), 1, 8, 8);
  const ImageOptions options = Options(R"({"crop": true, "flip": true, "augment": true})", 1);
  const auto draw = [&](uint64_t seed, uint64_t epoch, uint64_t sample) {
    const ImageTransform transform(options, {1, 6, 5}, Bytes(1), seed);
    TransformScratch scratch;
    std::vector<float> out(30);
    transform.Apply(pixels, epoch, sample, scratch, out.data());
    return out;
  };
  std::map<std::vector<int>, int> windows;
  for (uint64_t sample = 0; sample < 4800; ++sample) {
    const std::vector<float> out = draw(7, 3, sample);
    const bool mirrored = out[0] > out[1];
    const int first = static_cast<int>(std::lround(mirrored ? out[4] : out[0]));
    for (int i = 0; i < 30; ++i) {
      const int x = mirrored ? 4 - i % 5 : i % 5;
      REQUIRE(std::lround(out[i]) == first + 16 * (i / 5) + x);
    }
    ++windows[{first / 16, first % 16, mirrored}];
  }
  REQUIRE(windows.size() == 3 * 4 * 2);
  // 200 expected of each; deviation 13.8.
  for (const auto& [window, count] : windows) CHECK(std::abs(count - 200) < 70);

  CHECK(draw(7, 3, 11) == draw(7, 3, 11));
  const auto differ = [&](auto&& a, auto&& b) {
    int count = 0;
    for (uint64_t i = 0; i < 50; ++i) count += a(i) != b(i) ? 1 : 0;
    return count > 40;
  };
  const auto of = [&](uint64_t seed, uint64_t epoch) {
    return [=](uint64_t i) { return draw(seed, epoch, i); };
  };
  CHECK(differ(of(7, 3), of(8, 3)));
  CHECK(differ(of(7, 3), of(7, 4)));
  CHECK(differ(of(7, 3), [&](uint64_t i) { return draw(7, 3, i + 1); }));
}

TEST_CASE("a resized image is mirrored and cropped like a plain one") {
  const std::vector<uint8_t> bytes = Noise(3 * 14 * 14);
  const Pixels pixels = PlanarPixels(bytes.data(), 3, 14, 14);
  const Shape shape = {3, 5, 5};
  const ImageOptions options =
      Options(R"({"resize": 7, "crop": true, "flip": true, "augment": true})");
  const ImageTransform transform(options, shape, Bytes(3), 1);
  TransformScratch scratch;
  std::vector<float> out(75);
  std::set<bool> seen;
  for (uint64_t sample = 0; sample < 20; ++sample) {
    transform.Apply(pixels, 0, sample, scratch, out.data());
    int matches = 0;
    for (int w = 0; w < 18; ++w) {
      const int64_t top = w / 6, left = w / 2 % 3;
      const bool mirrored = w % 2 == 1;
      bool same = true;
      for (int64_t i = 0; i < 75 && same; ++i) {
        const int64_t x = mirrored ? 4 - i % 5 : i % 5;
        same = std::abs(out[i] - ResizedAt(pixels, 7, 7, i / 25, top + i / 5 % 5, left + x)) < 1e-2;
      }
      if (same) seen.insert(mirrored);
      matches += same ? 1 : 0;
    }
    CHECK(matches == 1);
  }
  CHECK(seen.size() == 2);
}

TEST_CASE("mean and deviation are exact over all pixels of each channel") {
  const std::vector<uint8_t> bytes = Noise(3 * 7 * 5);
  PixelStatistics statistics(3);
  statistics.Add(InterleavedPixels(bytes.data(), 3, 7, 5));
  const Normalisation result = statistics.Result();
  for (size_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    for (size_t i = c; i < bytes.size(); i += 3) sum += bytes[i] / 255.0;
    for (size_t i = c; i < bytes.size(); i += 3)
      squares += std::pow(bytes[i] / 255.0 - sum / 35, 2);
    CHECK(result.mean[c] == Approx(sum / 35));
    CHECK(result.deviation[c] == Approx(std::sqrt(squares / 35)));
  }
}

TEST_CASE("options are refused with their pointer") {
  const auto refusal = [](const char* json) { return ErrorOf([&] { Options(json); }); };
  CHECK_THAT(refusal(R"({"resise": 3})"), ContainsSubstring("resize"));
  CHECK_THAT(refusal(R"({"resize": 0})"), ContainsSubstring("options: /resize: expected"));
  CHECK_THAT(refusal(R"({"resize": [3]})"), ContainsSubstring("[height, width]"));
  CHECK_THAT(refusal(R"({"crop": "centre"})"), ContainsSubstring("/crop: expected"));
  CHECK_THAT(refusal(R"({"pad": -1})"), ContainsSubstring("/pad: expected"));
  CHECK_THAT(refusal(R"({"flip": true})"), ContainsSubstring("only augmentation flips"));
  CHECK(refusal(R"({"flip": true, "augment": false})") == "(no error)");
  CHECK_THAT(refusal(R"({"mean": [0.5, 0.5], "deviation": 1})"), ContainsSubstring("array of 3"));
  CHECK_THAT(refusal(R"({"mean": 0.5})"), ContainsSubstring("both of mean and deviation"));
  CHECK_THAT(refusal(R"({"mean": 0.5, "deviation": 0})"), ContainsSubstring("/deviation"));
  CHECK_THAT(refusal(R"({"decode_threads": 0})"), ContainsSubstring("/decode_threads"));
}

TEST_CASE("IDX images go through the same transforms, and a model of another size says so") {
  const TempDir directory;
  WriteIdx(directory, SmallIdx());
  const std::string raw = R"(, "mean": 0, "deviation": 0.00392156862745098)";
  const DataSource padded =
      Open(directory.path(), ImageFields({1, 8, 7}, 4), R"({"pad": 1)" + raw + "}");
  std::vector<float> image(56);
  padded.train->Read(9, 0, 0, image.data());
  CHECK(image[0] == 0);
  CHECK(image[8] == Approx(SmallPixel(9, 0)));
  CHECK_THAT(padded.metadata, ContainsSubstring(R"("pad":1)"));
  CHECK_THAT(Refusal(directory.path(), ImageFields({1, 8, 8}, 4), R"({"pad": 1})"),
             ContainsSubstring("expected shape [1, 8, 8], found [1, 8, 7] after pad"));
  CHECK_THAT(Refusal(directory.path(), ImageFields({1, 8, 8}, 4), R"({"skip_bad": true})"),
             ContainsSubstring("skip_bad"));
  // Augmented: training images change with the epoch, test images never.
  const DataSource moved =
      Open(directory.path(), ImageFields({1, 3, 3}, 4), R"({"crop": true, "augment": true})");
  const auto read = [](const Dataset& data, uint64_t epoch) {
    std::vector<float> all(20 * 9);
    for (int64_t i = 0; i < 20; ++i) data.Read(i, 0, epoch, &all[static_cast<size_t>(9 * i)]);
    return all;
  };
  CHECK(read(*moved.train, 0) != read(*moved.train, 1));
  CHECK(read(*moved.train, 1) == read(*moved.train, 1));
  CHECK(read(*moved.test, 0) == read(*moved.test, 1));
}

}  // namespace
}  // namespace pd
