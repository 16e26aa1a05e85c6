// A split is one array of token ids, and a sample a window of it. The vocabulary is learned from
// the training split alone.
#include "data/text.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace pd {
namespace {

using Tokens = std::vector<std::string_view>;
using Ids = std::unordered_map<std::string_view, int32_t>;

constexpr int32_t kUnknown = 0;

struct Split {
  std::string path, text;
  Tokens tokens;  // in `text`
};

// Bytes of the code point that begins at `at`; 0 where there is none that UTF-8 allows (RFC 3629:
// no longer forms than needed, no surrogates, nothing past U+10FFFF).
size_t CodePointBytes(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const unsigned first = byte(0), second = byte(1);
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second > 0x9F;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90;
    const bool beyond = first == 0xF4 && second > 0x8F;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Also refuses what is not UTF-8.
Tokens CodePoints(std::string_view text, const std::string& path) {
  Tokens tokens;
  tokens.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CodePointBytes(text, at);
    PD_REQUIRE(bytes > 0, "{}: byte {}: expected UTF-8, found the byte {:02x}", path, at,
               static_cast<unsigned char>(text[at]));
    tokens.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return tokens;
}

Tokens Words(const Tokens& code_points) {
  Tokens words;
  bool inside = false;
  for (const std::string_view c : code_points) {
    const bool space = c.size() == 1 && IsSpace(c[0]);
    if (!space && !inside) words.push_back(c);
    if (!space && inside) {
      words.back() = {words.back().data(), words.back().size() + c.size()};
    }
    inside = !space;
  }
  return words;
}

Split ReadSplit(const std::string& path, bool words) {
  Split split{path, ReadRegularFile(path), {}};
  split.tokens = CodePoints(WithoutByteOrderMark(split.text), path);
  if (words) split.tokens = Words(split.tokens);
  return split;
}

// The distinct tokens, the most frequent first, of equal ones the first byte-wise.
Tokens ByFrequency(const Tokens& tokens) {
  std::unordered_map<std::string_view, int64_t> counts;
  for (const std::string_view token : tokens) ++counts[token];
  std::vector<std::pair<int64_t, std::string_view>> order;
  order.reserve(counts.size());
  for (const auto& [token, count] : counts) order.emplace_back(-count, token);
  std::sort(order.begin(), order.end());
  Tokens distinct;
  distinct.reserve(order.size());
  for (const auto& [count, token] : order) distinct.push_back(token);
  return distinct;
}

class TextDataset : public Dataset {
 public:
  TextDataset(std::vector<int32_t> ids, const DataRequest& request)
      : ids_(std::move(ids)), window_(request.fields[0].spec.shape[0]) {
    for (const DataField& field : request.fields) {
      fields_.push_back(field.spec);
      is_target_.push_back(field.target);
    }
  }

  int64_t size() const override {
    return ids_.empty() ? 0 : (static_cast<int64_t>(ids_.size()) - 1) / window_;
  }
  const std::vector<TensorSpec>& fields() const override { return fields_; }
  void Read(int64_t index, int field, uint64_t /*epoch*/, void* out) const override {
    PD_CHECK(index >= 0 && index < size() && (field == 0 || field == 1),
             "sample {} of {}, field {}", index, size(), field);
    const int64_t begin = index * window_ + (is_target_[static_cast<size_t>(field)] ? 1 : 0);
    std::memcpy(out, ids_.data() + begin, static_cast<size_t>(window_) * sizeof(int32_t));
  }

 private:
  std::vector<int32_t> ids_;
  int64_t window_;
  std::vector<TensorSpec> fields_;
  std::vector<bool> is_target_;
};

void CheckFields(const DataRequest& request) {
  const std::vector<DataField>& fields = request.fields;
  PD_REQUIRE(fields.size() == 2 && fields[0].target != fields[1].target,
             "text: expected a model with two inputs i32 [T], tokens and targets, found {} input{}",
             fields.size(), fields.size() == 1 ? "" : "s");
  for (const DataField& field : fields) {
    PD_REQUIRE(field.spec.dtype == DType::kI32 && field.spec.shape.size() == 1 &&
                   field.spec.shape == fields[0].spec.shape,
               "text: the model's input \"{}\": expected i32 [T], T the same for tokens and "
               "targets, found {} {}",
               field.name, NameOf(field.spec.dtype), ToString(field.spec.shape));
  }
}

bool WantsWords(const JsonView& options) {
  options.CheckKeys({"tokens"}, "text data");
  const auto tokens = options.Find("tokens");
  if (!tokens) return false;
  const std::string value = tokens->String();
  if (value != "chars" && value != "words") tokens->Fail("\"chars\" or \"words\"");
  return value == "words";
}

std::vector<int32_t> ToIds(const Tokens& tokens, const Ids& ids) {
  std::vector<int32_t> result;
  result.reserve(tokens.size());
  for (const std::string_view token : tokens) {
    const auto found = ids.find(token);
    result.push_back(found == ids.end() ? kUnknown : found->second);
  }
  return result;
}

double UnknownShare(const std::vector<int32_t>& ids) {
  return static_cast<double>(std::count(ids.begin(), ids.end(), kUnknown)) /
         static_cast<double>(std::max<size_t>(1, ids.size()));
}

std::string Metadata(const Tokens& vocabulary, std::string_view kind) {
  nlohmann::ordered_json names = {nullptr};
  for (const std::string_view token : vocabulary) names.push_back(token);
  return nlohmann::ordered_json(
             {{"format", "text"}, {"tokens", kind}, {"vocabulary", std::move(names)}})
      .dump();
}

}  // namespace

bool LooksLikeText(const std::vector<std::string>& entries) {
  return std::find(entries.begin(), entries.end(), "train.txt") != entries.end();
}

DataSource OpenText(const std::string& directory, const std::vector<std::string>& entries,
                    const DataRequest& request) {
  CheckFields(request);
  const bool words = WantsWords(request.options);
  const char* const kind = words ? "words" : "chars";
  const auto has = [&](std::string_view name) {
    return std::find(entries.begin(), entries.end(), name) != entries.end();
  };
  PD_REQUIRE(has("test.txt") || has("valid.txt"),
             "{}: expected test.txt or valid.txt beside train.txt, found neither", directory);
  const std::string test_name = has("test.txt") ? "test.txt" : "valid.txt";
  const Split train = ReadSplit(fmt::format("{}/train.txt", directory), words);
  const Split test = ReadSplit(fmt::format("{}/{}", directory, test_name), words);

  Tokens vocabulary = ByFrequency(train.tokens);
  const size_t distinct = vocabulary.size();
  const int64_t limit = std::min(request.fields[0].limit, request.fields[1].limit);
  PD_REQUIRE(limit >= 2, "text: expected a model for two or more tokens, found {}", limit);
  vocabulary.resize(std::min(distinct, static_cast<size_t>(limit) - 1));  // 0 is not among them
  Ids ids;
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    ids.emplace(vocabulary[i], static_cast<int32_t>(i) + 1);
  }
  std::vector<int32_t> train_ids = ToIds(train.tokens, ids), test_ids = ToIds(test.tokens, ids);

  DataSource source;
  source.description = fmt::format(
      "text: {} and {} {} of train.txt and {}, in windows of {}; {} distinct ones, {} of them in "
      "the vocabulary, {:.2f} % and {:.2f} % of the text unknown",
      train_ids.size(), test_ids.size(), kind, test_name, request.fields[0].spec.shape[0], distinct,
      vocabulary.size(), 100 * UnknownShare(train_ids), 100 * UnknownShare(test_ids));
  source.metadata = Metadata(vocabulary, kind);
  source.train = std::make_unique<TextDataset>(std::move(train_ids), request);
  source.test = std::make_unique<TextDataset>(std::move(test_ids), request);
  PD_REQUIRE(source.train->size() > 0, "{}: expected at least {} {}, one window, found {}",
             train.path, request.fields[0].spec.shape[0] + 1, kind, train.tokens.size());
  return source;
}

}  // namespace pd
