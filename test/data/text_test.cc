#include <nlohmann/json.hpp>

#include "base/file.h"
#include "files.h"
#include "support/catch.h"

namespace pd {
namespace {

using Json = nlohmann::json;

std::vector<DataField> TokenFields(int64_t window, int64_t limit) {
  return {{"tokens", {{window}, DType::kI32}, limit},
          {"targets", {{window}, DType::kI32}, limit, true}};
}

std::vector<int32_t> Row(const Dataset& data, int64_t index, int field) {
  std::vector<int32_t> values(static_cast<size_t>(data.fields()[0].shape[0]));
  data.Read(index, field, 0, values.data());
  return values;
}

struct Text {
  explicit Text(const std::string& train, const std::string& test, const char* name = "test.txt") {
    WriteFile(directory / "train.txt", train);
    WriteFile(directory / name, test);
  }
  TempDir directory;
};

using Ids = std::vector<int32_t>;

TEST_CASE("text: windows follow one another, and targets are the tokens one later") {
  const Text text("abacabadabra", "abc");  // a 6, b 3, c d r 1
  const DataSource source = Open(text.directory.path(), TokenFields(4, 10));
  CHECK(Json::parse(source.metadata) == Json({{"format", "text"},
                                              {"tokens", "chars"},
                                              {"vocabulary", {nullptr, "a", "b", "c", "d", "r"}}}));
  REQUIRE(source.train->size() == 2);  // of 12 tokens; a third window would lack its last target
  CHECK(Row(*source.train, 0, 0) == Ids{1, 2, 1, 3});
  CHECK(Row(*source.train, 0, 1) == Ids{2, 1, 3, 1});
  CHECK(Row(*source.train, 1, 0) == Ids{1, 2, 1, 4});
  CHECK(Row(*source.train, 1, 1) == Ids{2, 1, 4, 1});
  CHECK(source.test->size() == 0);
}

TEST_CASE("text: the targets may be the model's first input") {
  const Text text("abcabc", "abc");
  std::vector<DataField> fields = TokenFields(2, 10);
  std::swap(fields[0], fields[1]);
  const DataSource source = Open(text.directory.path(), fields);
  CHECK(Row(*source.train, 0, 1) == Ids{1, 2});
  CHECK(Row(*source.train, 0, 0) == Ids{2, 3});
}

TEST_CASE("text: the most frequent tokens come first, of equal ones the first byte-wise") {
  const Text text("zzz éé éé, yy~", "");
  const DataSource source = Open(text.directory.path(), TokenFields(1, 100));
  CHECK(Json::parse(source.metadata).at("vocabulary") ==
        Json({nullptr, "é", " ", "z", "y", ",", "~"}));
}

TEST_CASE("text: past the model's limit the rarest tokens are unknown, and their share is said") {
  const Text text("aaaaabbbccd ", "adx");
  const DataSource source = Open(text.directory.path(), TokenFields(2, 3));
  CHECK(Json::parse(source.metadata).at("vocabulary") == Json({nullptr, "a", "b"}));
  CHECK(Row(*source.train, 3, 0) == Ids{2, 2});
  CHECK(Row(*source.train, 4, 0) == Ids{0, 0});
  CHECK(Row(*source.test, 0, 0) == Ids{1, 0});
  CHECK_THAT(
      source.description,
      ContainsSubstring("5 distinct ones, 2 of them in the vocabulary, 33.33 % and 66.67 %"));
}

TEST_CASE("text: words are what stands between white space") {
  const Text text("\xEF\xBB\xBF the cat\tthe\r\nhat, the  \n\ncat ", "the dog", "valid.txt");
  const DataSource source =
      Open(text.directory.path(), TokenFields(1, 10), R"({"tokens": "words"})");
  CHECK(Json::parse(source.metadata).at("vocabulary") == Json({nullptr, "the", "cat", "hat,"}));
  CHECK(source.train->size() == 5);
  CHECK(Row(*source.train, 1, 0) == Ids{2});
  CHECK(Row(*source.test, 0, 0) == Ids{1});
  CHECK(Row(*source.test, 0, 1) == Ids{0});
  CHECK_THAT(source.description, ContainsSubstring("words of train.txt and valid.txt"));
}

TEST_CASE("text that is not UTF-8 is refused with file and byte") {
  for (const char* bad : {"\xFF", "\xC0\xAF", "\xE2\x82", "\xED\xA0\x80", "\xF5\x80\x80\x80",
                          "\x80", "\xE0\x80\x80", "\xF4\x90\x80\x80", "\xC3"}) {
    const Text text(std::string("ab\xC3\xA9") + bad, "ab");
    CHECK_THAT(Refusal(text.directory.path(), TokenFields(1, 10)),
               ContainsSubstring("train.txt: byte 4: expected UTF-8"));
  }
  const Text text("\xF4\x8F\xBF\xBF\xEF\xBF\xBD\xED\x9F\xBF", "ab");
  CHECK(Open(text.directory.path(), TokenFields(1, 10)).train->size() == 2);
}

TEST_CASE("text that a model cannot read is refused") {
  const Text text("abc", "abc");
  const std::string path = text.directory.path();
  CHECK_THAT(Refusal(path, TokenFields(3, 10)),
             ContainsSubstring("expected at least 4 chars, one window, found 3"));
  CHECK_THAT(Refusal(path, TokenFields(2, 10), R"({"tokens": "bytes"})"),
             ContainsSubstring("options.json: /tokens: expected \"chars\" or \"words\""));
  CHECK_THAT(Refusal(path, TokenFields(2, 10), R"({"flip": true})"), ContainsSubstring("/flip"));
  CHECK_THAT(Refusal(path, ImageFields({2}, 10)), ContainsSubstring("found f32 [2]"));
  CHECK_THAT(Refusal(path, {TokenFields(2, 10)[0]}), ContainsSubstring("found 1 input"));
  std::vector<DataField> fields = TokenFields(2, 10);
  fields[1].spec.shape = {3};
  CHECK_THAT(Refusal(path, fields), ContainsSubstring("\"targets\": expected i32 [T]"));
  const TempDir alone;
  WriteFile(alone / "train.txt", "abc");
  CHECK_THAT(Refusal(alone.path(), TokenFields(1, 10)),
             ContainsSubstring("expected test.txt or valid.txt beside train.txt"));
}

}  // namespace
}  // namespace pd
