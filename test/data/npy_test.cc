#include <fmt/format.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "files.h"
#include "support/catch.h"

namespace pd {
namespace {

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A file as numpy.save writes it, with a header of any text.
std::string Npy(const std::string& dictionary, const std::string& values, int version = 1) {
  const size_t length_bytes = version == 1 ? 2 : 4;
  std::string text = dictionary;
  while ((8 + length_bytes + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (size_t i = 0; i < length_bytes; ++i) file += static_cast<char>(text.size() >> (8 * i) & 255);
  return file + text + values;
}

std::string Header(const std::string& descr, const std::string& shape,
                   const char* fortran = "False") {
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}", descr, fortran,
                     shape);
}

const std::vector<DataField> kFields = {{"x", {{2, 3}, DType::kF32}},
                                        {"words", {{2}, DType::kI32}, 50},
                                        {"next", {{2}, DType::kI32}, 50, true}};

struct Arrays {
  std::string train_x, train_words, train_next, test_x, test_words, test_next;
};

Arrays Small() {
  std::vector<float> x;
  std::vector<int64_t> words;
  std::vector<int32_t> next;
  for (int i = 0; i < 4 * 6; ++i) x.push_back(static_cast<float>(i) + 0.5F);
  for (int i = 0; i < 4 * 2; ++i) words.push_back(49 - i);
  for (int i = 0; i < 4 * 2; ++i) next.push_back(i == 5 ? -100 : i);
  return {Npy(Header("<f4", "(4, 2, 3)"), BytesOf(x)),
          Npy(Header("<i8", "(4, 2)"), BytesOf(words)),
          Npy(Header("<i4", "(4, 2)"), BytesOf(next)),
          Npy(Header("<f8", "(1, 2, 3)"), BytesOf(std::vector<double>{0.1, 2, 3, 4, 5, -1e-3}), 2),
          Npy(Header("|u1", "(1, 2)"), "\x01\x31", 3),
          Npy(Header("<i8", "(1, 2)"), BytesOf(std::vector<int64_t>{-100, 0}))};
}

void Write(const TempDir& directory, const Arrays& arrays) {
  WriteFile(directory / "train-x.npy", arrays.train_x);
  WriteFile(directory / "train-words.npy", arrays.train_words);
  WriteFile(directory / "train-next.npy", arrays.train_next);
  WriteFile(directory / "test-x.npy", arrays.test_x);
  WriteFile(directory / "test-words.npy", arrays.test_words);
  WriteFile(directory / "test-next.npy", arrays.test_next);
}

template <typename Change>
std::string RefusalOf(Change change) {
  Arrays arrays = Small();
  change(arrays);
  const TempDir directory;
  Write(directory, arrays);
  return Refusal(directory.path(), kFields);
}

TEST_CASE("npy arrays give each input its samples as they are, in every type and version") {
  const TempDir directory;
  Write(directory, Small());
  const DataSource source = Open(directory.path(), kFields);
  REQUIRE(source.train->size() == 4);
  REQUIRE(source.test->size() == 1);
  CHECK(source.train->fields() == SpecsOf(kFields));
  float x[6];
  int32_t pair[2];
  for (int64_t i = 0; i < 4; ++i) {
    source.train->Read(i, 0, 0, x);
    for (int k = 0; k < 6; ++k) CHECK(x[k] == static_cast<float>(6 * i + k) + 0.5F);
    source.train->Read(i, 1, 0, pair);
    for (int k = 0; k < 2; ++k) CHECK(pair[k] == 49 - (2 * i + k));
    source.train->Read(i, 2, 0, pair);
    for (int k = 0; k < 2; ++k) CHECK(pair[k] == (2 * i + k == 5 ? -100 : 2 * i + k));
  }
  source.test->Read(0, 0, 0, x);
  CHECK(x[0] == 0.1F);
  CHECK(x[5] == -1e-3F);
  source.test->Read(0, 1, 0, pair);
  CHECK((pair[0] == 1 && pair[1] == 49));
}

TEST_CASE("samples larger than the buffer they are converted in come whole") {
  const std::vector<DataField> fields = {{"x", {{5000}, DType::kF32}}};
  std::vector<double> values(3 * 5000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  const TempDir directory;
  WriteFile(directory / "train-x.npy", Npy(Header("<f8", "(3, 5000)"), BytesOf(values)));
  WriteFile(directory / "test-x.npy", Npy(Header("<f8", "(0, 5000)"), ""));
  const DataSource source = Open(directory.path(), fields);
  std::vector<float> x(5000);
  source.train->Read(1, 0, 0, x.data());
  for (size_t i = 0; i < 5000; ++i) REQUIRE(x[i] == static_cast<float>(5000 + i));
  CHECK(source.test->size() == 0);
}

TEST_CASE("an npy file cut short anywhere, or one byte longer, is refused") {
  const std::string whole = Small().train_x;
  const TempDir directory;
  Write(directory, Small());
  for (size_t length = 0; length < whole.size(); ++length) {
    WriteFile(directory / "train-x.npy", whole.substr(0, length));
    const std::string text = Refusal(directory.path(), kFields);
    REQUIRE_THAT(text, ContainsSubstring("/train-x.npy: "));
  }
  CHECK_THAT(RefusalOf([](Arrays& a) { a.train_x.pop_back(); }),
             ContainsSubstring("wants 96 bytes after byte 128, found 95"));
  CHECK_THAT(RefusalOf([](Arrays& a) { a.train_x += '\0'; }), ContainsSubstring("found 97"));
}

TEST_CASE("npy headers that lie or say what is not supported are refused") {
  const std::string values(96, '\0');
  const auto with = [&](const std::string& dictionary) {
    return RefusalOf([&](Arrays& a) { a.train_x = Npy(dictionary, values); });
  };
  CHECK_THAT(with(Header("<f4", "(4, 2, 3)", "True")), ContainsSubstring("found Fortran order"));
  CHECK_THAT(with(Header(">f4", "(4, 2, 3)")), ContainsSubstring("found >f4"));
  CHECK_THAT(with(Header("<f2", "(4, 2, 3)")), ContainsSubstring("expected the type <f4, <f8"));
  CHECK_THAT(with(Header("<i4", "(4, 2, 3)")), ContainsSubstring("found <i4"));
  CHECK_THAT(with(Header("<f4", "(4, 3, 2)")), ContainsSubstring("samples of shape [2, 3]"));
  CHECK_THAT(with(Header("<f4", "(24,)")), ContainsSubstring("an array of shape [24]"));
  CHECK_THAT(with(Header("<f4", "()")), ContainsSubstring("an array of shape []"));
  CHECK_THAT(with(Header("<f4", "(9223372036854775807, 2, 3)")), ContainsSubstring("64 bits"));
  // 2^59 · 24 bytes overflow 64 bits to a small number.
  CHECK_THAT(with(Header("<f4", "(576460752303423492, 2, 3)")),
             ContainsSubstring("wants 13835058055282163808 bytes"));
  CHECK_THAT(with(Header("<f4", "(-4, 2, 3)")), ContainsSubstring("expected an extent"));
  CHECK_THAT(with("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4, 2, 3)}"),
             ContainsSubstring("no record"));
  CHECK_THAT(with("{'descr': '<f4', 'shape': (4, 2, 3)}"), ContainsSubstring("all of descr"));
  CHECK_THAT(with("{'descr': '<f4', 'order': 3}"), ContainsSubstring("expected the keys"));
  CHECK_THAT(with(Header("<f4", "(4, 2, 3)") + "; import os"),
             ContainsSubstring("nothing after the header"));
  CHECK_THAT(with(std::string(60, '[')), ContainsSubstring("expected '{'"));
  CHECK_THAT(RefusalOf([](Arrays& a) { a.train_x[6] = 4; }), ContainsSubstring("found 4"));
  CHECK_THAT(RefusalOf([](Arrays& a) { a.train_x[9] = '\xff'; }), ContainsSubstring("byte 8: "));
  CHECK_THAT(RefusalOf([](Arrays& a) { a.test_x.replace(8, 4, "\xff\xff\xff\xff"); }),
             ContainsSubstring("a header of 4294967295 bytes does not fit"));
  CHECK_THAT(RefusalOf([](Arrays& a) { a.train_x[1] = 'X'; }), ContainsSubstring("byte 0: "));
}

TEST_CASE("integers outside an input's limit are refused with file and sample") {
  const auto words = [](int64_t value) {
    return RefusalOf([&](Arrays& a) {
      std::vector<int64_t> all(8, 3);
      all[5] = value;
      a.train_words = Npy(Header("<i8", "(4, 2)"), BytesOf(all));
    });
  };
  CHECK(words(0) == "accepted");
  CHECK_THAT(words(50),
             ContainsSubstring("/train-words.npy: sample 2: expected values from 0 to 49"));
  CHECK_THAT(words(50), ContainsSubstring("found 50"));
  CHECK_THAT(words(-1), ContainsSubstring("found -1"));
  CHECK_THAT(words(-100), ContainsSubstring("found -100"));  // no target
  CHECK_THAT(words((int64_t{1} << 32) + 3), ContainsSubstring("found 4294967299"));
  CHECK_THAT(RefusalOf([](Arrays& a) { a.test_next = Npy(Header("|u1", "(1, 2)"), "\x01\xff"); }),
             ContainsSubstring("/test-next.npy: sample 0: expected values from 0 to 49 (or -100"));
}

TEST_CASE("files of a split with different numbers of samples, and missing ones, are refused") {
  CHECK_THAT(RefusalOf([](Arrays& a) {
               a.train_next = Npy(Header("<i4", "(3, 2)"), std::string(24, '\0'));
             }),
             ContainsSubstring("/train-next.npy: expected 4 samples as in "));
  for (const char* name : {"train-x", "train-words", "test-next"}) {
    const TempDir directory;
    Write(directory, Small());
    std::filesystem::remove(directory / (std::string(name) + ".npy"));
    CHECK_THAT(Refusal(directory.path(), kFields), ContainsSubstring(std::string(name) + ".npy: "));
  }
  const TempDir directory;
  Write(directory, Small());
  CHECK_THAT(Refusal(directory.path(), kFields, R"({"augment": true})"),
             ContainsSubstring("augment"));
  CHECK_THAT(Refusal(directory.path(), {{"../x", {{2, 3}, DType::kF32}}}),
             ContainsSubstring("\"../x\""));
}

TEST_CASE("an npy file that becomes shorter while it is read ends with an error") {
  const TempDir directory;
  Write(directory, Small());
  const DataSource source = Open(directory.path(), kFields);
  std::filesystem::resize_file(directory / "train-x.npy", 140);
  float x[6];
  CHECK_THROWS_WITH(source.train->Read(3, 0, 0, x), ContainsSubstring("/train-x.npy: byte "));
}

}  // namespace
}  // namespace pd
