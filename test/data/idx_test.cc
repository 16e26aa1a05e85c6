#include <filesystem>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "files.h"
#include "support/catch.h"

namespace pd {
namespace {

const Shape kShape = {1, 6, 5};
constexpr int64_t kPixels = 30;

std::vector<float> ReadImage(const Dataset& data, int64_t index) {
  std::vector<float> image(kPixels);
  data.Read(index, 0, 0, image.data());
  return image;
}

int32_t ReadLabel(const Dataset& data, int64_t index) {
  int32_t label = -1;
  data.Read(index, 1, 0, &label);
  return label;
}

// What is said about a data set that differs from the small one in what `change` does to it.
template <typename Change>
std::string RefusalOf(Change change, const std::string& ending = "", int64_t classes = 4) {
  IdxBytes bytes = SmallIdx();
  if (ending == ".gz") {
    for (std::string* file :
         {&bytes.train_images, &bytes.train_labels, &bytes.test_images, &bytes.test_labels}) {
      *file = Gzip(*file);
    }
  }
  change(bytes);
  const TempDir directory;
  WriteIdx(directory, bytes, ending);
  return Refusal(directory.path(), ImageFields(kShape, classes));
}

void CheckIsSmall(const DataSource& source) {
  REQUIRE(source.train->size() == 100);
  REQUIRE(source.test->size() == 20);
  CHECK(source.train->fields() == SpecsOf(ImageFields(kShape, 4)));
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < 100; ++i) {
    for (int64_t p = 0; p < kPixels; ++p) sum += SmallPixel(i, p) / 255.0;
  }
  const double mean = sum / 3000;
  for (int64_t i = 0; i < 100; ++i) {
    for (int64_t p = 0; p < kPixels; ++p) {
      squares += (SmallPixel(i, p) / 255.0 - mean) * (SmallPixel(i, p) / 255.0 - mean);
    }
  }
  const double deviation = std::sqrt(squares / 3000);
  CHECK_THAT(source.description, ContainsSubstring(fmt::format("mean {:.4f}", mean)));
  CHECK_THAT(source.description, ContainsSubstring(fmt::format("deviation {:.4f}", deviation)));
  for (const Dataset* data : {source.train.get(), source.test.get()}) {
    for (int64_t i = 0; i < data->size(); ++i) {
      REQUIRE(ReadLabel(*data, i) == SmallLabel(i));
      const std::vector<float> image = ReadImage(*data, i);
      for (int64_t p = 0; p < kPixels; ++p) {
        REQUIRE(image[p] == Approx((SmallPixel(i, p) / 255.0 - mean) / deviation).margin(1e-6));
      }
    }
  }
}

TEST_CASE("IDX files give every pixel normalised by the training images, and every label") {
  const TempDir directory;
  WriteIdx(directory, SmallIdx());
  CheckIsSmall(Open(directory.path(), ImageFields(kShape, 4)));
  CheckIsSmall(Open(directory.path() + "/", ImageFields(kShape, 4)));
}

TEST_CASE("gzip and plain files, with '-' or '.', give the same data") {
  const IdxBytes plain = SmallIdx();
  SECTION("all packed") {
    const TempDir directory;
    WriteIdx(directory,
             {Gzip(plain.train_images), Gzip(plain.train_labels), Gzip(plain.test_images),
              Gzip(plain.test_labels)},
             ".gz");
    CheckIsSmall(Open(directory.path(), ImageFields(kShape, 4)));
  }
  SECTION("packed without the ending") {
    const TempDir directory;
    WriteIdx(directory, {Gzip(plain.train_images), plain.train_labels, plain.test_images,
                         Gzip(plain.test_labels)});
    CheckIsSmall(Open(directory.path(), ImageFields(kShape, 4)));
  }
  SECTION("a mixture of names") {
    const TempDir directory;
    WriteFile(directory / "train-images.idx3-ubyte", plain.train_images);
    WriteFile(directory / "train-labels.idx1-ubyte.gz", Gzip(plain.train_labels));
    WriteFile(directory / "t10k-images-idx3-ubyte.gz", Gzip(plain.test_images));
    WriteFile(directory / "t10k-labels-idx1-ubyte", plain.test_labels);
    WriteFile(directory / "LICENSE", "words");
    CheckIsSmall(Open(directory.path(), ImageFields(kShape, 4)));
  }
  SECTION("several gzip members") {
    const TempDir directory;
    WriteIdx(directory,
             {Gzip(plain.train_images.substr(0, 1000)) + Gzip(plain.train_images.substr(1000)),
              plain.train_labels, plain.test_images, plain.test_labels});
    CheckIsSmall(Open(directory.path(), ImageFields(kShape, 4)));
  }
}

TEST_CASE("the unpacked file is read where both are there") {
  const TempDir directory;
  WriteIdx(directory, SmallIdx());
  WriteFile(directory / "train-images-idx3-ubyte.gz", "not read");
  CheckIsSmall(Open(directory.path(), ImageFields(kShape, 4)));
}

TEST_CASE("a file cut short anywhere is refused") {
  const IdxBytes small = SmallIdx();
  const TempDir directory;
  WriteIdx(directory, small);
  for (size_t length = 0; length < small.train_labels.size(); ++length) {
    WriteFile(directory / "train-labels-idx1-ubyte", small.train_labels.substr(0, length));
    CHECK_THAT(Refusal(directory.path(), ImageFields(kShape, 4)),
               ContainsSubstring("train-labels-idx1-ubyte: "));
  }
  for (const size_t length : {0, 1, 3, 4, 15, 16, 17, 3015}) {
    CHECK_THAT(RefusalOf([&](IdxBytes& b) { b.train_images.resize(length); }),
               ContainsSubstring("train-images-idx3-ubyte: "));
  }
}

TEST_CASE("one byte less and one more are refused with the numbers") {
  const std::string less = RefusalOf([](IdxBytes& b) { b.train_images.pop_back(); });
  CHECK_THAT(less, ContainsSubstring("/train-images-idx3-ubyte: byte 4: "));
  CHECK_THAT(less, ContainsSubstring("[100, 6, 5] want 3000 bytes"));
  CHECK_THAT(less, ContainsSubstring("found 2999"));
  const std::string more = RefusalOf([](IdxBytes& b) { b.test_labels += '\1'; });
  CHECK_THAT(more, ContainsSubstring("/t10k-labels-idx1-ubyte: byte 4: "));
  CHECK_THAT(more, ContainsSubstring("want 20 bytes"));
  CHECK_THAT(more, ContainsSubstring("found more"));
  const auto repack = [](bool longer) {
    return [longer](IdxBytes& b) {
      std::string bytes = SmallIdx().train_images;
      bytes.resize(longer ? bytes.size() + 1 : bytes.size() - 1);
      b.train_images = Gzip(bytes);
    };
  };
  CHECK_THAT(RefusalOf(repack(false), ".gz"), ContainsSubstring("(unpacked): byte 4: "));
  CHECK_THAT(RefusalOf(repack(false), ".gz"), ContainsSubstring("found 2999"));
  CHECK_THAT(RefusalOf(repack(true), ".gz"), ContainsSubstring("found more"));
}

TEST_CASE("a flipped bit in a header is refused") {
  for (int byte = 0; byte < 16; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      CAPTURE(byte, bit);
      const auto flip = [&](IdxBytes& b) { b.train_images[byte] ^= static_cast<char>(1 << bit); };
      CHECK_THAT(RefusalOf(flip), ContainsSubstring("/train-images-idx3-ubyte: byte "));
    }
  }
}

TEST_CASE("a flipped bit in gzip data is refused or changes nothing") {
  const std::string packed = Gzip(SmallIdx().train_labels);
  const TempDir directory;
  WriteIdx(directory, SmallIdx());
  std::filesystem::remove(directory / "train-labels-idx1-ubyte");
  int refused = 0;
  for (size_t byte = 0; byte < packed.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = packed;
      damaged[byte] ^= static_cast<char>(1 << bit);
      WriteFile(directory / "train-labels-idx1-ubyte.gz", damaged);
      CAPTURE(byte, bit);
      try {
        const DataSource source = Open(directory.path(), ImageFields(kShape, 4));
        for (int64_t i = 0; i < 100; ++i) REQUIRE(ReadLabel(*source.train, i) == SmallLabel(i));
      } catch (const Error& e) {
        ++refused;
        CHECK_THAT(std::string(e.what()), ContainsSubstring("train-labels-idx1-ubyte.gz"));
      }
    }
  }
  // All but the header's time, extra flags and system (6 bytes that describe no data) must matter.
  CHECK(refused >= static_cast<int>(8 * (packed.size() - 7)));
}

TEST_CASE(
    "gzip data with a wrong checksum, a cut tail or bytes behind it is refused with the place") {
  const auto crc = [](IdxBytes& b) { b.train_images[b.train_images.size() - 8] ^= 1; };
  CHECK_THAT(RefusalOf(crc, ".gz"), ContainsSubstring("train-images-idx3-ubyte.gz: byte "));
  CHECK_THAT(RefusalOf(crc, ".gz"), ContainsSubstring("damaged gzip data: incorrect data check"));
  for (const size_t cut : {1, 4, 8, 9, 30}) {
    const auto shorten = [&](IdxBytes& b) { b.train_images.resize(b.train_images.size() - cut); };
    CHECK_THAT(RefusalOf(shorten, ".gz"), ContainsSubstring("(truncated)"));
  }
  const auto behind = [](IdxBytes& b) { b.train_images += "x"; };
  CHECK_THAT(RefusalOf(behind, ".gz"), ContainsSubstring("found 1 more bytes"));
  const auto plain = [](IdxBytes& b) { b.train_images = SmallIdx().train_images; };
  CHECK_THAT(RefusalOf(plain, ".gz"), ContainsSubstring("expected gzip data (1f 8b)"));
}

TEST_CASE("header counts of 2^31 and more are refused against the file, without the memory") {
  const std::string body(3000, '\0');
  const std::string count = RefusalOf([&](IdxBytes& b) {
    b.train_images = Idx({1U << 31, 6, 5}, body);
  });
  CHECK_THAT(count, ContainsSubstring("[2147483648, 6, 5] want 64424509440 bytes"));
  CHECK_THAT(count, ContainsSubstring("found 3000"));
  // 2^31 · 2^31 · 4 = 2^64 and (2^32 - 1)^3 overflow 64 bits.
  CHECK_THAT(RefusalOf([&](IdxBytes& b) {
               b.train_images = Idx({1U << 31, 1U << 31, 4}, "");
             }),
             ContainsSubstring("want 18446744073709551616 bytes"));
  const uint32_t most = std::numeric_limits<uint32_t>::max();
  CHECK_THAT(RefusalOf([&](IdxBytes& b) {
               b.train_images = Idx({most, most, most}, body);
             }),
             ContainsSubstring("found 3000"));
  CHECK_THAT(RefusalOf([&](IdxBytes& b) { b.train_labels = Idx({1U << 31}, "\1\2"); }),
             ContainsSubstring("found 2"));
  CHECK_THAT(RefusalOf(
                 [&](IdxBytes& b) {
                   b.train_images = Gzip(Idx({1U << 31, 6, 5}, body));
                 },
                 ".gz"),
             ContainsSubstring("found 3000"));
  CHECK_THAT(RefusalOf([&](IdxBytes& b) {
               b.train_images = Idx({0, most, most}, "");
             }),
             ContainsSubstring("expected shape [1, 6, 5]"));
  CHECK_THAT(RefusalOf([&](IdxBytes& b) {
               b.train_images = Idx({100, 0, 5}, "");
             }),
             ContainsSubstring("byte 8: "));
}

TEST_CASE("images and labels swapped are refused by their magic numbers") {
  const std::string text =
      RefusalOf([](IdxBytes& b) { std::swap(b.train_images, b.train_labels); });
  CHECK_THAT(text, ContainsSubstring("train-images-idx3-ubyte: byte 0: "));
  CHECK_THAT(text, ContainsSubstring("expected the magic number 00 00 08 03"));
  CHECK_THAT(text, ContainsSubstring("found 00 00 08 01 (a file of labels)"));
  CHECK_THAT(RefusalOf([](IdxBytes& b) { b.test_labels = b.test_images; }),
             ContainsSubstring("found 00 00 08 03 (a file of images)"));
  CHECK_THAT(RefusalOf([](IdxBytes& b) { b.train_images[2] = 0x0d; }),
             ContainsSubstring("found 00 00 0d 03"));
}

TEST_CASE("100 images with 99 labels are refused") {
  const std::string text = RefusalOf(
      [](IdxBytes& b) { b.train_labels = Idx({99}, SmallIdx().train_labels.substr(8, 99)); });
  CHECK_THAT(text, ContainsSubstring("/train-labels-idx1-ubyte: expected 100 labels"));
  CHECK_THAT(text, ContainsSubstring("/train-images-idx3-ubyte, found 99"));
}

TEST_CASE("a label outside the model's classes is refused with file and sample") {
  const std::string train = RefusalOf([](IdxBytes& b) { b.train_labels[8 + 57] = 4; });
  CHECK_THAT(train,
             ContainsSubstring("/train-labels-idx1-ubyte: sample 57: expected a label below 4"));
  CHECK_THAT(train, ContainsSubstring("found 4"));
  const std::string test = RefusalOf([](IdxBytes& b) { b.test_labels[8 + 19] = '\xff'; });
  CHECK_THAT(test, ContainsSubstring("/t10k-labels-idx1-ubyte: sample 19: "));
  CHECK_THAT(test, ContainsSubstring("found 255"));
  CHECK_THAT(RefusalOf([](IdxBytes&) {}, "", 3), ContainsSubstring("sample 1: "));
  CHECK(RefusalOf([](IdxBytes&) {}, "", 1000) == "accepted");
}

TEST_CASE("images that do not fit the model's input are refused, in either split") {
  const TempDir directory;
  WriteIdx(directory, SmallIdx());
  for (const Shape& shape : {Shape{30}, Shape{}}) {
    CHECK_THAT(
        Refusal(directory.path(), ImageFields(shape, 4)),
        ContainsSubstring("expected shape [channels, height, width], found " + ToString(shape)));
  }
  for (const Shape& shape : {Shape{1, 5, 6}, Shape{3, 6, 5}, Shape{1, 28, 28}}) {
    const std::string text = Refusal(directory.path(), ImageFields(shape, 4));
    CHECK_THAT(text, ContainsSubstring("/train-images-idx3-ubyte: "));
    CHECK_THAT(text, ContainsSubstring("expected shape " + ToString(shape) + ", found [1, 6, 5]"));
  }
  const std::string transposed = RefusalOf([](IdxBytes& b) {
    b.test_images = Idx({20, 5, 6}, SmallIdx().test_images.substr(16));
  });
  CHECK_THAT(transposed, ContainsSubstring("/t10k-images-idx3-ubyte: "));
  CHECK_THAT(transposed, ContainsSubstring("found [1, 5, 6]"));
}

TEST_CASE("a model whose inputs are not an f32 image and an i32 label is refused") {
  const TempDir directory;
  WriteIdx(directory, SmallIdx());
  CHECK_THAT(Refusal(directory.path(), {{"image", {kShape, DType::kF32}}}),
             ContainsSubstring("found 1"));
  CHECK_THAT(Refusal(directory.path(),
                     {{"image", {kShape, DType::kI32}, 4}, {"label", {{}, DType::kI32}, 4, true}}),
             ContainsSubstring("expected f32, found i32"));
  CHECK_THAT(Refusal(directory.path(),
                     {{"image", {kShape, DType::kF32}}, {"label", {{2}, DType::kI32}, 4, true}}),
             ContainsSubstring("found i32 of shape [2]"));
}

TEST_CASE("each of the four files that is missing is named") {
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const TempDir directory;
    WriteIdx(directory, SmallIdx());
    std::filesystem::remove(directory / name);
    const std::string text = Refusal(directory.path(), ImageFields(kShape, 4));
    CHECK_THAT(text, ContainsSubstring(directory.path() + ": expected a file " + name));
  }
}

TEST_CASE("a directory in a file's place is refused") {
  const TempDir directory;
  WriteIdx(directory, SmallIdx());
  std::filesystem::remove(directory / "train-images-idx3-ubyte");
  std::filesystem::create_directory(directory / "train-images-idx3-ubyte");
  CHECK_THAT(Refusal(directory.path(), ImageFields(kShape, 4)), ContainsSubstring("a directory"));
}

TEST_CASE("no test image is allowed, no training image is not") {
  const auto none = [](std::string& images, std::string& labels) {
    images = Idx({0, 6, 5}, "");
    labels = Idx({0}, "");
  };
  CHECK(RefusalOf([&](IdxBytes& b) { none(b.test_images, b.test_labels); }) == "accepted");
  CHECK_THAT(RefusalOf([&](IdxBytes& b) { none(b.train_images, b.train_labels); }),
             ContainsSubstring("expected at least one training image"));
}

TEST_CASE("images of one grey give zeros, not NaN") {
  IdxBytes bytes = SmallIdx();
  bytes.train_images = Idx({100, 6, 5}, std::string(3000, '\x55'));
  const TempDir directory;
  WriteIdx(directory, bytes);
  const DataSource source = Open(directory.path(), ImageFields(kShape, 4));
  for (const float value : ReadImage(*source.train, 3)) CHECK(value == Approx(0).margin(1e-6));
}

}  // namespace
}  // namespace pd
