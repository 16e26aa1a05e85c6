#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "files.h"
#include "support/catch.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

const std::string kRaw = R"({"mean": 0, "deviation": 0.00392156862745098})";
const std::vector<std::string> kCifar10 = {"data_batch_1.bin", "data_batch_2.bin",
                                           "data_batch_3.bin", "data_batch_4.bin",
                                           "data_batch_5.bin", "test_batch.bin"};

// A file of the published length: zeros but for what is put in.
void MakeFile(const std::string& path, uintmax_t bytes) {
  WriteFile(path, "");
  fs::resize_file(path, bytes);
}

void Put(const std::string& path, uintmax_t at, const std::string& bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file << bytes;
  REQUIRE(file.good());
}

void MakeCifar10(const TempDir& directory) {
  for (const std::string& name : kCifar10) MakeFile(directory / name, 30730000);
}

float PixelOf(const Dataset& data, int64_t index, int64_t c, int64_t y, int64_t x) {
  std::vector<float> image(3072);
  data.Read(index, 0, 0, image.data());
  return image[static_cast<size_t>(c * 1024 + y * 32 + x)];
}

int32_t LabelOf(const Dataset& data, int64_t index) {
  int32_t label = -1;
  data.Read(index, 1, 0, &label);
  return label;
}

TEST_CASE("CIFAR-10: records of 3073 bytes, planes red, green, blue, rows from the top") {
  const TempDir directory;
  MakeCifar10(directory);
  // Record 2 of the third file: label 7, red at (1, 3), green at (31, 31), blue at (0, 0).
  const std::string third = directory / "data_batch_3.bin";
  Put(third, 2 * 3073, "\x07");
  Put(third, 2 * 3073 + 1 + 32 + 3, "\x11");
  Put(third, 2 * 3073 + 1 + 1024 + 1023, "\x22");
  Put(third, 2 * 3073 + 1 + 2048, "\x33");
  Put(directory / "test_batch.bin", 9999 * 3073, "\x09");
  const DataSource source = Open(directory.path(), ImageFields({3, 32, 32}, 10), kRaw);
  REQUIRE(source.train->size() == 50000);
  REQUIRE(source.test->size() == 10000);
  const int64_t index = 20002;
  CHECK(LabelOf(*source.train, index) == 7);
  CHECK(PixelOf(*source.train, index, 0, 1, 3) == Approx(0x11));
  CHECK(PixelOf(*source.train, index, 1, 31, 31) == Approx(0x22));
  CHECK(PixelOf(*source.train, index, 2, 0, 0) == Approx(0x33));
  CHECK(PixelOf(*source.train, index, 2, 0, 1) == 0);
  CHECK(LabelOf(*source.train, index + 1) == 0);
  CHECK(LabelOf(*source.test, 9999) == 9);
  CHECK_THAT(source.description, ContainsSubstring("CIFAR-10: 50000 training and 10000 test"));
}

TEST_CASE(
    "CIFAR-100: the fine label counts and is checked, channels are normalised each by its own") {
  const TempDir directory;
  MakeFile(directory / "train.bin", 153700000);
  MakeFile(directory / "test.bin", 30740000);
  Put(directory / "train.bin", 3 * 3074, "\x05\x63" + std::string(1024, '\xff'));
  const DataSource source = Open(directory.path(), ImageFields({3, 32, 32}, 100));
  REQUIRE(source.train->size() == 50000);
  CHECK(LabelOf(*source.train, 3) == 99);
  // One red image of 50,000: mean p = 1/50000, deviation √(p (1 - p)).
  const double p = 1 / 50000.0, deviation = std::sqrt(p * (1 - p));
  CHECK(PixelOf(*source.train, 3, 0, 5, 5) == Approx((1 - p) / deviation));
  CHECK(PixelOf(*source.train, 4, 0, 5, 5) == Approx(-p / deviation));
  CHECK(PixelOf(*source.train, 3, 1, 5, 5) == 0);  // a deviation of 0 divides by 1

  CHECK_THAT(Refusal(directory.path(), ImageFields({1, 32, 32}, 100)),
             ContainsSubstring("expected shape [1, 32, 32], found [3, 32, 32]"));
  Put(directory / "test.bin", 17 * 3074 + 1, "\x64");
  CHECK_THAT(Refusal(directory.path(), ImageFields({3, 32, 32}, 100)),
             ContainsSubstring("/test.bin: sample 17: expected a label below 100"));
  MakeFile(directory / "test_batch.bin", 10);
  CHECK_THAT(Refusal(directory.path(), ImageFields({3, 32, 32}, 100)),
             ContainsSubstring("found both"));
}

TEST_CASE("CIFAR files that are missing, short or long are refused with the numbers") {
  const TempDir directory;
  MakeCifar10(directory);
  const auto refusal = [&] { return Refusal(directory.path(), ImageFields({3, 32, 32}, 10)); };
  for (const std::string& name : kCifar10) {
    fs::resize_file(directory / name, 30729999);
    CHECK_THAT(refusal(), ContainsSubstring("/" + name +
                                            ": expected 30730000 bytes (10000 records "
                                            "of 3073), found 30729999"));
    fs::resize_file(directory / name, 30730001);
    CHECK_THAT(refusal(), ContainsSubstring("/" + name + ": expected 30730000 bytes"));
    fs::remove(directory / name);
    CHECK_THAT(refusal(), ContainsSubstring("/" + name + ": expected a file of 10000 records"));
    MakeFile(directory / name, 30730000);
  }
  fs::resize_file(directory / "data_batch_2.bin", 0);
  CHECK_THAT(refusal(), ContainsSubstring("found 0"));
}

}  // namespace
}  // namespace pd
