#include "base/json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;

JsonView Parse(const std::string& text) { return JsonView::Parse(text, "f.json"); }
std::string ParseError(const std::string& text) {
  return ErrorOf([&] { Parse(text); });
}

TEST_CASE("Empty documents are refused as such") {
  CHECK(ParseError("") == "f.json: expected a JSON document, found an empty file");
  CHECK(ParseError(" \n\t\r\n") == "f.json: expected a JSON document, found an empty file");
}

TEST_CASE("Syntax errors are refused with their line") {
  CHECK_THAT(ParseError("{\n\"a\": 1,\n\"b\" 2}"),
             ContainsSubstring("f.json: not JSON: parse error at line 3"));
  CHECK_THAT(ParseError("{\n\n  \"a\": [1, 2,\n]}"), ContainsSubstring("line 4"));
  CHECK_THAT(ParseError("{\n\"a\": 1"), ContainsSubstring("line 2"));
  CHECK_THAT(ParseError("{}\n{}"), ContainsSubstring("line 2"));
  CHECK_THAT(ParseError("{}\n// comment"), ContainsSubstring("line 2"));
  CHECK_THAT(ParseError("{\"a\": 'x'}"), ContainsSubstring("line 1"));
  CHECK_THAT(ParseError("{\"a\": 01}"), ContainsSubstring("line 1"));
  CHECK_THAT(ParseError("{\"a\": +1}"), ContainsSubstring("line 1"));
  CHECK_THAT(ParseError("{\"a\": \"\xff\"}"), ContainsSubstring("line 1"));
  CHECK_THAT(ParseError(std::string("{\"a\":\0 1}", 9)), ContainsSubstring("line 1"));
}

TEST_CASE("NaN, infinities and numbers out of range are refused") {
  for (const char* number : {"NaN", "nan", "Infinity", "-Infinity", "inf", "1e309", "-1e309"}) {
    CAPTURE(number);
    CHECK_THAT(ParseError(std::string("{\"a\": ") + number + "}"),
               ContainsSubstring("f.json: not JSON: "));
  }
  CHECK_THAT(ParseError("{\"a\": 1e309}"), ContainsSubstring("1e309"));
}

TEST_CASE("Half a million brackets are refused, open or closed") {
  constexpr size_t kMany = 500'000;
  const std::string open(kMany, '[');
  CHECK(ParseError(open) == "f.json: nested deeper than 100 levels");
  CHECK(ParseError(open + std::string(kMany, ']')) == "f.json: nested deeper than 100 levels");
  std::string objects;
  for (size_t i = 0; i < kMany; ++i) objects += "{\"a\":";
  CHECK(ParseError(objects) == "f.json: nested deeper than 100 levels");
  CHECK_NOTHROW(Parse(std::string(100, '[') + std::string(100, ']')));
}

TEST_CASE("Duplicate keys are refused with the place of their object") {
  CHECK(ParseError("{\"a\": 1, \"a\": 1}") == "f.json: /: duplicate key \"a\"");
  CHECK(ParseError(
            "{\"x\": 0, \"l\": [[], {\"a\": {}}, {\"b/c\": {\"a\": 1, \"d\": [1], \"a\": 2}}]}") ==
        "f.json: /l/2/b~1c: duplicate key \"a\"");
  CHECK_NOTHROW(Parse("{\"a\": {\"a\": [{\"a\": 1}, {\"a\": 1}]}}"));
}

TEST_CASE("An error is one line of limited length whatever the document holds") {
  const std::string key(100'000, 'k');
  CHECK(ErrorOf([&] { Parse("{\"" + key + "\": 1}").CheckKeys({"a"}); }).size() < 300);
  CHECK(ErrorOf([&] { Parse("\"" + key + "\"").Int(0, 1); }).size() < 300);
  CHECK(ParseError("\"" + key).size() < 300);
  CHECK_THAT(ErrorOf([] { Parse("{\"a\\nb\": 1}").CheckKeys({"c"}); }),
             ContainsSubstring("f.json: /a\\u000ab: unknown key \"a\\nb\""));
  CHECK_THAT(ErrorOf([] { Parse("{\"a\\nb\": {}}").At("a\nb").Int(0, 1); }),
             ContainsSubstring("/a\\u000ab"));
}

TEST_CASE("Unknown keys are refused with the nearest allowed one, when one is near") {
  const JsonView view = Parse("{\"layers\": [{\"kernal\": 3}]}").At("layers").Items()[0];
  CHECK(ErrorOf([&] {
          view.CheckKeys({"stride", "kernel", "name"});
        }) == "f.json: /layers/0/kernal: unknown key \"kernal\"; did you mean \"kernel\"?");
  CHECK(ErrorOf([&] {
          view.CheckKeys({"stride", "name"});
        }) == "f.json: /layers/0/kernal: unknown key \"kernal\"");
  CHECK_NOTHROW(view.CheckKeys({"kernal"}));
  CHECK(ErrorOf([] { Parse("[1]").CheckKeys({"a"}); }) ==
        "f.json: /: expected an object, found an array");
}

TEST_CASE("Nearest suggests what a person may have meant and nothing else") {
  CHECK(Nearest("paddign", {"padding", "stride"}) == "padding");
  CHECK(Nearest("conv", {"conv2d", "concat"}) == "conv2d");
  CHECK(Nearest("batchnorm", {"batch_norm", "lrn"}) == "batch_norm");
  CHECK(Nearest("zebra", {"padding", "stride"}).empty());
  CHECK(Nearest("x", {"k", "p"}).empty());
  CHECK(Nearest("foo", {"fc1"}).empty());  // two of three letters are another word
  CHECK(Nearest("fc_1", {"fc1"}) == "fc1");
  CHECK(Nearest("", {"k"}).empty());
}

TEST_CASE("Reads of the wrong kind name pointer, expected and found") {
  const JsonView view = Parse(R"({"n": 2.5, "s": "7", "z": null, "b": true, "a": [1, {"x": -1}],
      "big": 18446744073709551615, "e": 1e3, "huge": 99999999999999999999, "t": "", "c": "a\u0007"})");
  const auto error = [&](const char* key, auto read) {
    return ErrorOf([&] { read(view.At(key)); });
  };
  const auto count = [](const JsonView& v) { v.Int(1, 10); };
  const auto number = [](const JsonView& v) { v.Number(0, 1); };
  CHECK(error("n", count) == "f.json: /n: expected an integer from 1 to 10, found 2.5");
  CHECK(error("s", count) == "f.json: /s: expected an integer from 1 to 10, found \"7\"");
  CHECK(error("z", count) == "f.json: /z: expected an integer from 1 to 10, found null");
  CHECK(error("b", count) == "f.json: /b: expected an integer from 1 to 10, found true");
  CHECK(error("a", count) == "f.json: /a: expected an integer from 1 to 10, found an array");
  CHECK(error("e", count) == "f.json: /e: expected an integer from 1 to 10, found 1000.0");
  CHECK_THAT(error("big", count), ContainsSubstring("found 18446744073709551615"));
  CHECK_THAT(error("big", [](const JsonView& v) { v.Int(0, INT64_MAX); }),
             ContainsSubstring("expected an integer of at least 0, found 18446744073709551615"));
  CHECK_THAT(error("huge", count), ContainsSubstring("/huge: expected an integer"));
  CHECK(error("n", number) == "f.json: /n: expected a number from 0 to 1, found 2.5");
  CHECK(error("s", number) == "f.json: /s: expected a number from 0 to 1, found \"7\"");
  CHECK(error("z", [](const JsonView& v) { v.String(); }) ==
        "f.json: /z: expected a string, found null");
  CHECK(error("t", [](const JsonView& v) { v.String(); }) ==
        "f.json: /t: expected a string of printable characters, found \"\"");
  CHECK(error("c", [](const JsonView& v) { v.String(); }) ==
        "f.json: /c: expected a string of printable characters, found \"a\\u0007\"");
  CHECK(error("n", [](const JsonView& v) { v.Bool(); }) ==
        "f.json: /n: expected true or false, found 2.5");
  CHECK(error("n", [](const JsonView& v) { v.Items(); }) ==
        "f.json: /n: expected an array, found 2.5");
  CHECK(error("a", [](const JsonView& v) { v.Members(); }) ==
        "f.json: /a: expected an object, found an array");
  CHECK(error("a", [&](const JsonView& v) { count(v.Items()[1].At("x")); }) ==
        "f.json: /a/1/x: expected an integer from 1 to 10, found -1");
  CHECK(ErrorOf([&] { view.At("none"); }) == "f.json: /: expected a key \"none\", found none");
  CHECK_FALSE(view.Find("none").has_value());
}

TEST_CASE("A view outlives the view it came from") {
  const JsonView inner = Parse("{\"a\": [{\"b\": 7}]}").At("a").Items()[0].At("b");
  CHECK(inner.Int(0, 10) == 7);
  CHECK(inner.pointer() == "/a/0/b");
  CHECK(inner.file() == "f.json");
}

TEST_CASE("A format is compared as a whole") {
  CHECK_NOTHROW(CheckFormat(Parse("{\"format\": \"pipedream.model/1\"}"), "model"));
  CHECK(ErrorOf([] { CheckFormat(Parse("{\"format\": \"pipedream.plan/1\"}"), "model"); }) ==
        "f.json: /format: expected \"pipedream.model/1\", found \"pipedream.plan/1\"");
  CHECK(ErrorOf([] { CheckFormat(Parse("{}"), "model"); }) ==
        "f.json: /: expected a key \"format\", found none");
}

TEST_CASE("What WriteJson writes reads back as the same value and the same bytes") {
  const Json value = {{"z first", 0.1},
                      {"a", {1, 2.5, -3, 1e-300, 1.7976931348623157e308}},
                      {"empty", Json::array()},
                      {"nothing", Json::object()},
                      {"null", nullptr},
                      {"big", std::numeric_limits<uint64_t>::max()},
                      {"small", std::numeric_limits<int64_t>::min()},
                      {"text", "quote \" slash \\ tab \t ü 漢"},
                      {"mixed", {1, {{"k", {true, false}}}, Json::array({Json::array()})}},
                      {"key \"\n", 1}};
  const std::string text = WriteJson(value);
  const JsonView back = Parse(text);
  CHECK(back.value() == value);
  CHECK(back.Members()[0].first == "z first");
  CHECK(WriteJson(back.value()) == text);
}

TEST_CASE("WriteJson indents by two and keeps arrays of scalars on a line") {
  CHECK(
      WriteJson({{"a", {1, 2}}, {"b", {{{"c", "x"}}}}, {"d", Json::array()}}) ==
      "{\n  \"a\": [1, 2],\n  \"b\": [\n    {\n      \"c\": \"x\"\n    }\n  ],\n  \"d\": []\n}\n");
}

TEST_CASE("WriteJson never turns NaN or an infinity into null") {
  for (const double number : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK_THAT(ErrorOf(
                   [&] {
                     WriteJson({{"a", number}});
                   },
                   ErrorCode::kInternal),
               ContainsSubstring("no NaN"));
    CHECK_THAT(ErrorOf(
                   [&] {
                     WriteJson({{"a", {1.0, number}}});
                   },
                   ErrorCode::kInternal),
               ContainsSubstring("no NaN"));
  }
}

}  // namespace
}  // namespace pd
