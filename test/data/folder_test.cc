#include <fmt/format.h>
#include <png.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "data/image_file.h"
#include "data/loader.h"
#include "files.h"
#include "pictures.h"
#include "support/allocations.h"
#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

const std::string kRaw = R"("mean": 0, "deviation": 0.00392156862745098)";

void Put(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  WriteFile(path, bytes);
}

std::string GreyPng(uint8_t value, int64_t height = 4, int64_t width = 4) {
  return EncodePng(
      {height, width, std::vector<uint8_t>(static_cast<size_t>(height * width), value)},
      {PNG_COLOR_TYPE_GRAY});
}

// Three classes of four training images and two test images; image i of class c is plain grey of
// 40 c + i.
void MakeFolder(const TempDir& directory, const std::string& test = "test") {
  for (int c = 0; c < 3; ++c) {
    const std::string name(1, static_cast<char>('a' + c));
    for (int i = 0; i < 6; ++i) {
      Put(fmt::format("{}/{}/{}/{}.png", directory.path(), i < 4 ? "train" : test, name, i),
          GreyPng(static_cast<uint8_t>(40 * c + i)));
    }
  }
}

std::vector<float> ImageOf(const Dataset& data, int64_t index, uint64_t epoch = 0) {
  std::vector<float> image(static_cast<size_t>(Elements(data.fields()[0].shape)));
  data.Read(index, 0, epoch, image.data());
  return image;
}

int32_t LabelOf(const Dataset& data, int64_t index) {
  int32_t label = -1;
  data.Read(index, 1, 0, &label);
  return label;
}

TEST_CASE(
    "a folder's classes are the training directories in byte-wise order, hidden ones are none") {
  for (const char* test : {"test", "val"}) {
    const TempDir directory;
    for (const char* name : {"b", "B", "a", "10", "9", "\xc3\xa4", ".hidden"}) {
      Put(fmt::format("{}/train/{}/x.png", directory.path(), name), GreyPng(1));
    }
    Put(fmt::format("{}/train/README", directory.path()), "words");
    Put(fmt::format("{}/train/a/notes.txt", directory.path()), "words");
    Put(fmt::format("{}/train/a/.x.png", directory.path()), "not read");
    Put(fmt::format("{}/{}/b/x.PNG", directory.path(), test), GreyPng(2));
    Put(fmt::format("{}/{}/.cache/x.png", directory.path(), test), "not read");
    const DataSource source = Open(directory.path(), ImageFields({1, 4, 4}, 6));
    CHECK_THAT(source.metadata, ContainsSubstring(R"("classes":["10","9","B","a","b","ä"])"));
    REQUIRE(source.train->size() == 6);
    for (int64_t i = 0; i < 6; ++i) CHECK(LabelOf(*source.train, i) == i);
    REQUIRE(source.test->size() == 1);
    CHECK(LabelOf(*source.test, 0) == 4);
  }
}

TEST_CASE("each image comes with its own pixels and label") {
  const TempDir directory;
  MakeFolder(directory);
  const DataSource source = Open(directory.path(), ImageFields({1, 4, 4}, 3), "{" + kRaw + "}");
  REQUIRE(source.train->size() == 12);
  REQUIRE(source.test->size() == 6);
  for (int64_t i = 0; i < 12; ++i) {
    CHECK(LabelOf(*source.train, i) == i / 4);
    for (const float v : ImageOf(*source.train, i)) CHECK(v == Approx(40 * (i / 4) + i % 4));
  }
  for (int64_t i = 0; i < 6; ++i) {
    CHECK(LabelOf(*source.test, i) == i / 2);
    for (const float v : ImageOf(*source.test, i)) CHECK(v == Approx(40 * (i / 2) + 4 + i % 2));
  }
  CHECK_THAT(source.description,
             ContainsSubstring("12 training and 6 test images (of test) in 3 "));
}

TEST_CASE("mean and deviation of a folder are those of its training images") {
  const TempDir directory;
  MakeFolder(directory);
  const DataSource source = Open(directory.path(), ImageFields({3, 4, 4}, 3));
  double sum = 0, squares = 0;
  for (int i = 0; i < 12; ++i) sum += (40 * (i / 4) + i % 4) / 255.0;
  for (int i = 0; i < 12; ++i) squares += std::pow((40 * (i / 4) + i % 4) / 255.0 - sum / 12, 2);
  const std::string mean = fmt::format("{:.4f}", sum / 12);
  const std::string deviation = fmt::format("{:.4f}", std::sqrt(squares / 12));
  CHECK_THAT(source.description,
             ContainsSubstring(
                 fmt::format("mean [{0}, {0}, {0}], deviation [{1}, {1}, {1}]", mean, deviation)));
}

// What Decode gives for `file`, as [height, width, channels].
std::vector<uint8_t> DecodedAt(const std::string& path, const std::string& file, int64_t channels,
                               bool alpha = false) {
  WriteFile(path, file);
  ImageFileReader reader;
  const bool found = reader.Inspect(path).alpha;
  CHECK(found == alpha);
  const Pixels pixels = reader.Decode(path, channels);
  REQUIRE(pixels.channels == channels);
  return {pixels.data, pixels.data + pixels.height * pixels.width * channels};
}

std::vector<uint8_t> Decoded(const std::string& file, int64_t channels, bool alpha = false) {
  const TempDir directory;
  return DecodedAt(directory / "x", file, channels, alpha);
}

std::vector<uint8_t> GreyOf(const std::vector<uint8_t>& rgb) {
  std::vector<uint8_t> grey;
  for (size_t i = 0; i < rgb.size(); i += 3) {
    const double luma = 0.299 * rgb[i] + 0.587 * rgb[i + 1] + 0.114 * rgb[i + 2];
    grey.push_back(static_cast<uint8_t>(std::lround(luma)));
  }
  return grey;
}

std::vector<uint8_t> RgbOf(const std::vector<uint8_t>& grey) {
  std::vector<uint8_t> rgb;
  for (const uint8_t v : grey) rgb.insert(rgb.end(), {v, v, v});
  return rgb;
}

int LargestDifference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  REQUIRE(a.size() == b.size());
  int largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST_CASE(
    "every kind of PNG is decoded: grey and colours, 1 to 16 bits, palettes, alpha, interlaced") {
  const Picture rgb = Gradient(9, 7, 3), grey = Gradient(9, 7, 1);
  for (const bool interlaced : {false, true}) {
    const std::string color_file = EncodePng(rgb, {PNG_COLOR_TYPE_RGB, 8, interlaced});
    CHECK(Decoded(color_file, 3) == rgb.bytes);
    CHECK(LargestDifference(Decoded(color_file, 1), GreyOf(rgb.bytes)) <= 1);
    const std::string grey_file = EncodePng(grey, {PNG_COLOR_TYPE_GRAY, 8, interlaced});
    CHECK(Decoded(grey_file, 1) == grey.bytes);
    CHECK(Decoded(grey_file, 3) == RgbOf(grey.bytes));
  }
  SECTION("16 bits are rounded: 257 v gives v, and so does 257 v + 100, not 257 v + 150") {
    for (const auto& [more, expected] : {std::pair{0, 0}, {100, 0}, {150, 1}}) {
      Picture deep = {9, 7, {}};
      std::vector<uint8_t> rounded;
      for (const uint8_t v : rgb.bytes) {
        const int value = 257 * v + more;
        deep.bytes.push_back(static_cast<uint8_t>(value >> 8));
        deep.bytes.push_back(static_cast<uint8_t>(value & 255));
        rounded.push_back(static_cast<uint8_t>(v + expected));
      }
      CHECK(Decoded(EncodePng(deep, {PNG_COLOR_TYPE_RGB, 16}), 3) == rounded);
    }
  }
  SECTION("alpha is dropped, the colours below it stay") {
    Picture with_alpha = {9, 7, {}};
    for (size_t i = 0; i < 63; ++i) {
      for (size_t c = 0; c < 3; ++c) with_alpha.bytes.push_back(rgb.bytes[3 * i + c]);
      with_alpha.bytes.push_back(static_cast<uint8_t>(4 * i));
    }
    CHECK(Decoded(EncodePng(with_alpha, {PNG_COLOR_TYPE_RGB_ALPHA}), 3, true) == rgb.bytes);
    Picture grey_alpha = {9, 7, {}};
    for (const uint8_t v : grey.bytes) grey_alpha.bytes.insert(grey_alpha.bytes.end(), {v, 0});
    CHECK(Decoded(EncodePng(grey_alpha, {PNG_COLOR_TYPE_GRAY_ALPHA}), 1, true) == grey.bytes);
    CHECK(Decoded(EncodePng(grey_alpha, {PNG_COLOR_TYPE_GRAY_ALPHA}), 3, true) ==
          RgbOf(grey.bytes));
  }
  SECTION("palettes of 8 and 2 bits, with transparent entries or without") {
    const std::vector<uint8_t> palette = {10, 20, 30, 200, 100, 50, 0, 255, 0, 7, 8, 9};
    for (const std::vector<uint8_t>& alpha : {std::vector<uint8_t>{}, {0, 128}}) {
      const Picture bytes = {2, 4, {0, 1, 2, 3, 3, 2, 1, 0}};
      const Picture bits = {2, 4, {0b00011011, 0b11100100}};
      std::vector<uint8_t> expected;
      for (const uint8_t i : bytes.bytes) {
        expected.insert(expected.end(), palette.begin() + 3 * i, palette.begin() + 3 * i + 3);
      }
      for (const auto& [picture, depth] : {std::pair{bytes, 8}, {bits, 2}}) {
        const std::string file =
            EncodePng(picture, {PNG_COLOR_TYPE_PALETTE, depth, false, palette, alpha});
        CHECK(Decoded(file, 3) == expected);
        CHECK(LargestDifference(Decoded(file, 1), GreyOf(expected)) <= 1);
      }
    }
  }
  SECTION("black and white of one bit") {
    const std::string file = EncodePng({1, 8, {0b10110010}}, {PNG_COLOR_TYPE_GRAY, 1});
    CHECK(Decoded(file, 1) == std::vector<uint8_t>{255, 0, 255, 255, 0, 0, 255, 0});
  }
}

TEST_CASE("JPEG is decoded to grey and colours, baseline and progressive; CMYK is refused") {
  const Picture rgb = Gradient(33, 17, 3), grey = Gradient(33, 17, 1);
  for (const int flags : {0, TJFLAG_PROGRESSIVE}) {
    const std::string color_file = EncodeJpeg(rgb, TJPF_RGB, 100, flags);
    CHECK(LargestDifference(Decoded(color_file, 3), rgb.bytes) <= 4);
    CHECK(LargestDifference(Decoded(color_file, 1), GreyOf(rgb.bytes)) <= 3);
    const std::string grey_file = EncodeJpeg(grey, TJPF_GRAY, 100, flags);
    CHECK(LargestDifference(Decoded(grey_file, 1), grey.bytes) <= 3);
    CHECK(LargestDifference(Decoded(grey_file, 3), RgbOf(grey.bytes)) <= 3);
  }
  CHECK_THAT(ErrorOf([] { Decoded(EncodeJpeg(Gradient(8, 8, 4), TJPF_CMYK), 3); }),
             ContainsSubstring("expected a grey or RGB JPEG, found CMYK"));
}

TEST_CASE("a JPEG whose header is long, and whose EXIF asks to turn it, is read as it is stored") {
  const Picture rgb = Gradient(12, 8, 3);
  std::string file = EncodeJpeg(rgb, TJPF_RGB);
  std::string exif("Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0", 32);
  exif.resize(60000, ' ');
  const size_t length = exif.size() + 2;
  file.insert(2, std::string("\xff\xe1") + static_cast<char>(length >> 8) +
                     static_cast<char>(length & 255) + exif);
  CHECK(LargestDifference(Decoded(file, 3), rgb.bytes) <= 4);
}

TEST_CASE("a bad image is refused with its path when opened, or skipped and counted") {
  const std::string png = GreyPng(9), jpeg = EncodeJpeg(Gradient(4, 4, 1), TJPF_GRAY);
  const TempDir good;
  MakeFolder(good);
  const auto refusal = [&](const std::string& bytes) {
    WriteFile(good / "train/b/bad.png", bytes);
    const std::string text = Refusal(good.path(), ImageFields({1, 4, 4}, 3));
    if (text != "accepted") CHECK_THAT(text, ContainsSubstring("/train/b/bad.png: "));
    return text;
  };
  CHECK_THAT(refusal(""), ContainsSubstring("found an empty one"));
  CHECK_THAT(refusal("GIF89a and so on"), ContainsSubstring("found something else"));
  CHECK_THAT(refusal(png.substr(0, png.size() - 12)), ContainsSubstring("IEND"));
  CHECK_THAT(refusal(png.substr(0, 20)), ContainsSubstring("PNG header"));
  CHECK_THAT(refusal(jpeg.substr(0, jpeg.size() - 2)), ContainsSubstring("ff d9"));
  CHECK_THAT(refusal(jpeg.substr(0, 30) + "\xff\xd9"), ContainsSubstring("JPEG"));
  for (size_t byte = 8; byte < 33; ++byte) {
    std::string flipped = png;
    flipped[byte] ^= 4;
    CHECK_THAT(refusal(flipped), ContainsSubstring("PNG header (IHDR) with its checksum"));
  }
  CHECK_THAT(refusal(GreyPng(9, 5, 4)),
             ContainsSubstring("expected shape [1, 4, 4], found [1, 5, 4]"));
  CHECK(refusal(jpeg) == "accepted");                           // the content tells, not the name
  CHECK(refusal(png + std::string(9000, '\0')) == "accepted");  // some write behind the end
  CHECK(refusal(jpeg + std::string(9000, '\0')) == "accepted");

  const TempDir directory;
  MakeFolder(directory);
  Put(directory / "train/b/0.png", png.substr(0, 40));
  Put(directory / "train/b/2.png", "");
  Put(directory / "test/a/4.png", "");
  const DataSource source =
      Open(directory.path(), ImageFields({1, 4, 4}, 3), R"({"skip_bad": true, )" + kRaw + "}");
  CHECK(source.train->size() == 10);
  CHECK(source.test->size() == 5);
  CHECK_THAT(source.description, ContainsSubstring("3 bad ones left out"));
  CHECK(ImageOf(*source.train, 4)[0] == Approx(41));  // b/1.png
  CHECK(ImageOf(*source.train, 5)[0] == Approx(43));
  CHECK(LabelOf(*source.train, 5) == 1);
  CHECK(ImageOf(*source.train, 6)[0] == Approx(80));
}

TEST_CASE("a class whose images are all bad is refused, whatever skip_bad says") {
  const TempDir directory;
  MakeFolder(directory);
  for (int i = 0; i < 5; ++i) Put(fmt::format("{}/train/b/{}.png", directory.path(), i), "");
  CHECK_THAT(Refusal(directory.path(), ImageFields({1, 4, 4}, 3), R"({"skip_bad": true})"),
             ContainsSubstring("train/b: expected at least one good image"));
}

TEST_CASE("pipes and devices among the data are refused, not waited for") {
  const TempDir directory;
  MakeFolder(directory);
  const std::string pipe = directory / "train/a/pipe.png";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THAT(Refusal(directory.path(), ImageFields({1, 4, 4}, 3)),
             ContainsSubstring("pipe.png: expected a file, found a pipe"));
  const TempDir text;
  const std::string train = text / "train.txt";
  REQUIRE(::symlink("/dev/zero", train.c_str()) == 0);
  Put(text / "test.txt", "text");
  const std::vector<DataField> tokens = {{"text", {{2}, DType::kI32}, 9, false},
                                         {"target", {{2}, DType::kI32}, 9, true}};
  CHECK_THAT(Refusal(text.path(), tokens), ContainsSubstring("train.txt: expected a file, found a "
                                                             "device"));
}

// The middle of a file is read only when the sample is.
TEST_CASE("damage that only decoding shows stops the run in order, with the path") {
  const std::string png = EncodePng(Gradient(40, 40, 3), {PNG_COLOR_TYPE_RGB});
  const std::string jpeg = EncodeJpeg(Gradient(40, 40, 3), TJPF_RGB);
  std::string flipped = png, cut = jpeg;
  flipped[png.size() / 2] ^= 1;
  cut.erase(jpeg.size() / 2, jpeg.size() / 4);
  for (const std::string& bytes : {flipped, cut}) {
    const TempDir directory;
    for (int i = 0; i < 20; ++i) {
      Put(fmt::format("{}/train/a/{:02}.png", directory.path(), i), i == 13 ? bytes : png);
    }
    Put(directory / "test/a/0.png", png);
    const DataSource source = Open(directory.path(), ImageFields({3, 40, 40}, 1), "{" + kRaw + "}");
    for (const int threads : {1, 3}) {
      Loader loader(*source.train, 4, 2, threads);
      std::vector<int64_t> order(20);
      for (int64_t i = 0; i < 20; ++i) order[static_cast<size_t>(i)] = i;
      loader.Start(order, 0, 0, 1, 5);
      for (int b = 0; b < 3; ++b) CHECK(loader.Next().number == b);
      CHECK_THROWS_WITH(loader.Next(), ContainsSubstring("/train/a/13.png: damaged "));
    }
    // Measuring mean and deviation decodes, too.
    CHECK_THAT(Refusal(directory.path(), ImageFields({3, 40, 40}, 1)),
               ContainsSubstring("/train/a/13.png: damaged "));
  }
}

TEST_CASE("a PNG with any bit flipped is refused or changes nothing that is stored in it") {
  const Picture picture = Gradient(6, 5, 1);
  const std::string png = EncodePng(picture, {PNG_COLOR_TYPE_GRAY});
  const TempDir directory;
  int refused = 0;
  for (size_t byte = 0; byte < png.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = png;
      damaged[byte] ^= static_cast<char>(1 << bit);
      bool same = true;
      const std::string said =
          ErrorOf([&] { same = DecodedAt(directory / "x", damaged, 1) == picture.bytes; });
      CHECK(same);
      refused += said != "(no error)" ? 1 : 0;
      CHECK(said != "(error of another kind)");
    }
  }
  CHECK(refused >= static_cast<int>(8 * (png.size() - 8)));  // all but IEND's length and checksum
}

TEST_CASE("folders that are not as they should be are refused with the place") {
  const auto refusal = [](auto change, int64_t classes = 3) {
    const TempDir directory;
    MakeFolder(directory);
    change(directory);
    return Refusal(directory.path(), ImageFields({1, 4, 4}, classes));
  };
  CHECK(refusal([](const TempDir&) {}) == "accepted");
  CHECK_THAT(refusal([](const TempDir& d) { Put(d / "test/zebra/0.png", GreyPng(1)); }),
             ContainsSubstring("/test/zebra: expected a class that the training split has"));
  CHECK_THAT(refusal([](const TempDir& d) { fs::remove_all(d / "test"); }),
             ContainsSubstring("expected a directory test or val beside train"));
  CHECK_THAT(refusal([](const TempDir& d) { fs::create_directory(d / "train/empty"); }, 4),
             ContainsSubstring("/train/empty/: expected images of the class"));
  CHECK_THAT(refusal([](const TempDir& d) { Put(d / "train/a/sub/0.png", GreyPng(1)); }),
             ContainsSubstring("/train/a/sub: expected only image files"));
  CHECK_THAT(refusal([](const TempDir& d) { Put(d / "train/0.png", GreyPng(1)); }),
             ContainsSubstring("/train/0.png: expected images in a folder of their class"));
  CHECK_THAT(refusal([](const TempDir&) {}, 2),
             ContainsSubstring("/train: expected at most 2 classes, the model's number, found 3"));
  CHECK_THAT(refusal([](const TempDir& d) { Put(d / "train/\x1b[2J/0.png", GreyPng(1)); }, 4),
             ContainsSubstring("printable"));
  const TempDir directory;
  MakeFolder(directory);
  CHECK_THAT(Refusal(directory.path(), ImageFields({2, 4, 4}, 3)),
             ContainsSubstring("expected 1 channel (grey) or 3 (RGB), found 2"));
}

TEST_CASE("what the loader gives of a folder is the same for every number of decode threads") {
  const TempDir directory;
  for (int i = 0; i < 30; ++i) {
    const Picture picture = Gradient(20 + i % 7, 20 + i % 5, 3);
    Put(fmt::format("{}/train/{}/{}", directory.path(), i % 3, i) + (i % 2 == 0 ? ".png" : ".jpg"),
        i % 2 == 0 ? EncodePng(picture, {PNG_COLOR_TYPE_RGB}) : EncodeJpeg(picture, TJPF_RGB));
  }
  Put(directory / "val/0/0.png", EncodePng(Gradient(20, 20, 3), {PNG_COLOR_TYPE_RGB}));
  const std::string options =
      R"({"resize": 18, "pad": 1, "crop": true, "flip": true, "augment": true})";
  std::vector<std::vector<float>> runs;
  for (const int threads : {1, 2, 5}) {
    const DataSource source = Open(directory.path(), ImageFields({3, 16, 16}, 3), options);
    Loader loader(*source.train, 7, 2, threads);
    runs.emplace_back();
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      loader.Start(EpochOrder(3, epoch, 30), epoch, 0, 1, 5);
      for (int b = 0; b < 5; ++b) {
        const Minibatch& minibatch = loader.Next();
        const auto* values = reinterpret_cast<const float*>(minibatch.fields[0]);
        runs.back().insert(runs.back().end(), values, values + minibatch.samples * 768);
      }
    }
  }
  CHECK(runs[0] == runs[1]);
  CHECK(runs[0] == runs[2]);
  const auto middle = runs[0].begin() + 30 * 768;
  CHECK(!std::equal(runs[0].begin(), middle, middle));  // another epoch, another order
}

TEST_CASE("decoding and transforming allocate nothing of ours once the buffers have grown") {
  const TempDir directory;
  for (int i = 0; i < 8; ++i) {
    const Picture picture = Gradient(20 + i, 24, 3);
    Put(fmt::format("{}/train/a/{}.jpg", directory.path(), i),
        i % 2 == 0 ? EncodePng(picture, {PNG_COLOR_TYPE_RGB}) : EncodeJpeg(picture, TJPF_RGB));
  }
  Put(directory / "test/a/0.png", EncodePng(Gradient(20, 20, 3), {PNG_COLOR_TYPE_RGB}));
  const DataSource source = Open(directory.path(), ImageFields({3, 16, 16}, 1),
                                 R"({"resize": 18, "crop": true, "augment": true})");
  std::vector<float> image(768);
  const auto read_all = [&](uint64_t epoch) {
    for (int64_t i = 0; i < 8; ++i) source.train->Read(i, 0, epoch, image.data());
  };
  read_all(0);
  const int64_t before = AllocationsOfThisThread();
  read_all(1);
  CHECK(AllocationsOfThisThread() == before);
}

}  // namespace
}  // namespace pd
