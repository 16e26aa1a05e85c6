// Strict JSON with places. Documents are parsed once into a tree, and read through views that know
// their JSON pointer, so that every complaint can say where. The parser's callback refuses what
// nlohmann/json lets pass: duplicate keys and deep nesting.
#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kMaxDepth = 100;
constexpr size_t kMaxShown = 60;

// At most kMaxShown bytes of `text`, cut between characters.
std::string Cut(const std::string& text, size_t most = kMaxShown) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

// A scalar as it would stand in a document, on one line whatever it holds.
std::string Quoted(const Json& value) {
  return Cut(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string Shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  return Quoted(value);
}

// A key as a part of a JSON pointer (RFC 6901), on one line whatever it holds.
std::string Escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += c;
    }
  }
  return Cut(out);
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// Refuses duplicate keys and deep nesting while the parser runs, and knows the place where it is.
class StrictCallback {
 public:
  explicit StrictCallback(std::string file) : file_(std::move(file)) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_end || event == Event::array_end) {
      levels_.pop_back();
    } else if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      Level& level = levels_.back();
      PD_REQUIRE(level.keys.insert(key).second, "{}: {}: duplicate key {}", file_,
                 levels_.size() == 1 ? "/" : Pointer(), Quoted(parsed));
      level.key = key;
    } else {
      if (!levels_.empty()) ++levels_.back().index;
      if (event == Event::value) return true;
      PD_REQUIRE(depth < kMaxDepth, "{}: nested deeper than {} levels", file_, kMaxDepth);
      levels_.push_back({.array = event == Event::array_start});
    }
    return true;
  }

 private:
  struct Level {
    bool array = false;
    int64_t index = -1;  // of the newest element
    std::string key = {};
    std::set<std::string> keys = {};
  };

  // Where the innermost object stands.
  std::string Pointer() const {
    std::string out;
    for (size_t i = 0; i + 1 < levels_.size(); ++i) {
      const Level& level = levels_[i];
      out += '/' + (level.array ? std::to_string(level.index) : Escaped(level.key));
    }
    return out;
  }

  std::string file_;
  std::vector<Level> levels_;
};

bool IsScalarArray(const Json& value) {
  return value.is_array() && std::none_of(value.begin(), value.end(), [](const Json& element) {
           return element.is_structured();
         });
}

std::string Scalar(const Json& value) {
  PD_CHECK(!value.is_number_float() || std::isfinite(value.get<double>()),
           "JSON has no NaN and no infinity");
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Write(const Json& value, int indent, std::string& out) {
  const std::string pad(static_cast<size_t>(indent) + 2, ' ');
  if (IsScalarArray(value) || value.empty() || !value.is_structured()) {
    if (value.is_array() && !value.empty()) {
      out += '[';
      for (size_t i = 0; i < value.size(); ++i) {
        out += (i == 0 ? "" : ", ") + Scalar(value[i]);
      }
      out += ']';
    } else {
      out += Scalar(value);
    }
    return;
  }
  const char open = value.is_array() ? '[' : '{';
  const char close = value.is_array() ? ']' : '}';
  out += open;
  bool first = true;
  for (const auto& [key, element] : value.items()) {
    out += first ? "\n" : ",\n";
    first = false;
    out += pad;
    if (value.is_object()) out += Json(key).dump() + ": ";
    Write(element, indent + 2, out);
  }
  out += '\n' + std::string(static_cast<size_t>(indent), ' ') + close;
}

}  // namespace

struct JsonView::Document {
  std::string file;
  Json root;
};

JsonView::JsonView(std::shared_ptr<const Document> document, const Json* value, std::string pointer)
    : document_(std::move(document)), value_(value), pointer_(std::move(pointer)) {}

JsonView JsonView::Parse(std::string_view text, const std::string& file) {
  PD_REQUIRE(text.substr(0, 2) != "\xFF\xFE" && text.substr(0, 2) != "\xFE\xFF",
             "{}: expected UTF-8, found UTF-16 (by its byte order mark)", file);
  text = WithoutByteOrderMark(text);
  PD_REQUIRE(text.find_first_not_of(" \t\r\n") != std::string_view::npos,
             "{}: expected a JSON document, found an empty file", file);
  auto document = std::make_shared<Document>();
  document->file = file;
  try {
    document->root = Json::parse(text.begin(), text.end(), StrictCallback(file));
  } catch (const Json::exception& e) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …" without its tag.
    std::string what = e.what();
    const size_t tag = what.find("] ");
    if (tag != std::string::npos) what = what.substr(tag + 2);
    std::replace(what.begin(), what.end(), '\n', ' ');
    constexpr size_t kMaxReason = 200;
    Throw(ErrorCode::kInvalidInput, "{}: not JSON: {}", file, Cut(what, kMaxReason));
  }
  const Json* root = &document->root;
  return {std::move(document), root, ""};
}

void JsonView::CheckKeys(std::initializer_list<std::string_view> allowed,
                         std::string_view owner) const {
  CheckKeys(std::vector<std::string_view>(allowed), owner);
}

void JsonView::CheckKeys(const std::vector<std::string_view>& allowed,
                         std::string_view owner) const {
  if (!value_->is_object()) Fail("an object");
  for (const auto& [key, element] : value_->items()) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    const std::string near = Nearest(key, allowed);
    const std::string hint = near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near);
    std::string known;
    for (const std::string_view each : allowed) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", each);
    }
    PD_REQUIRE(owner.empty(), "{}: {}/{}: expected a key of {} ({}), found {}{}", file(), pointer_,
               Escaped(key), owner, known.empty() ? "it has none" : known, Quoted(key), hint);
    Throw(ErrorCode::kInvalidInput, "{}: {}/{}: unknown key {}{}", file(), pointer_, Escaped(key),
          Quoted(key), hint);
  }
}

bool JsonView::IsObject() const { return value_->is_object(); }
bool JsonView::IsArray() const { return value_->is_array(); }
bool JsonView::IsString() const { return value_->is_string(); }
bool JsonView::IsNumber() const { return value_->is_number(); }
bool JsonView::IsNull() const { return value_->is_null(); }

JsonView JsonView::At(std::string_view key) const {
  auto found = Find(key);
  if (!found) Fail(fmt::format("a key \"{}\"", key), "none");
  return *std::move(found);
}

std::optional<JsonView> JsonView::Find(std::string_view key) const {
  if (!value_->is_object()) Fail("an object");
  const auto it = value_->find(std::string(key));
  if (it == value_->end()) return std::nullopt;
  return JsonView(document_, &*it, pointer_ + "/" + Escaped(key));
}

std::vector<JsonView> JsonView::Items() const {
  if (!value_->is_array()) Fail("an array");
  std::vector<JsonView> items;
  items.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    items.push_back(JsonView(document_, &(*value_)[i], fmt::format("{}/{}", pointer_, i)));
  }
  return items;
}

std::vector<std::pair<std::string, JsonView>> JsonView::Members() const {
  if (!value_->is_object()) Fail("an object");
  std::vector<std::pair<std::string, JsonView>> members;
  for (const auto& [key, element] : value_->items()) {
    members.emplace_back(key, JsonView(document_, &element, pointer_ + "/" + Escaped(key)));
  }
  return members;
}

int64_t JsonView::Int(int64_t min, int64_t max) const {
  const std::string expected = max == INT64_MAX ? fmt::format("an integer of at least {}", min)
                                                : fmt::format("an integer from {} to {}", min, max);
  if (!value_->is_number_integer()) Fail(expected);
  if (value_->is_number_unsigned()) {
    if (value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) Fail(expected);
  }
  const auto number = value_->get<int64_t>();
  if (number < min || number > max) Fail(expected);
  return number;
}

double JsonView::Number(double min, double max) const {
  const std::string expected = fmt::format("a number from {} to {}", min, max);
  if (!value_->is_number()) Fail(expected);
  const auto number = value_->get<double>();
  if (!(number >= min && number <= max) || !std::isfinite(number)) Fail(expected);
  return number;
}

bool JsonView::Bool() const {
  if (!value_->is_boolean()) Fail("true or false");
  return value_->get<bool>();
}

std::string JsonView::String() const {
  if (!value_->is_string()) Fail("a string");
  auto text = value_->get<std::string>();
  const bool printable = std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  });
  if (text.empty() || !printable) Fail("a string of printable characters");
  return text;
}

void JsonView::Fail(const std::string& expected) const { Fail(expected, Shown(*value_)); }

void JsonView::Fail(const std::string& expected, const std::string& found) const {
  Throw(ErrorCode::kInvalidInput, "{}: {}: expected {}, found {}", file(),
        pointer_.empty() ? "/" : pointer_, expected, found);
}

const std::string& JsonView::file() const { return document_->file; }

bool LooksLikeJson(std::string_view text) {
  const std::string_view rest = WithoutByteOrderMark(text);
  const size_t first = rest.find_first_not_of(" \t\r\n");
  constexpr std::string_view kStarts = "{[\xFE\xFF";  // the last two: marks of UTF-16
  return first == std::string_view::npos || kStarts.find(rest[first]) != std::string_view::npos;
}

void CheckFormat(const JsonView& view, std::string_view kind) {
  const std::string wanted = fmt::format("pipedream.{}/1", kind);
  const JsonView format = view.At("format");
  if (format.String() != wanted) format.Fail(fmt::format("\"{}\"", wanted));
}

std::string Nearest(std::string_view word, const std::vector<std::string_view>& known) {
  std::string best;
  // A third of the word may be wrong, two letters of a short one, but never more than half of it.
  size_t best_distance = std::min(std::max<size_t>(2, word.size() / 3), word.size() / 2) + 1;
  for (const std::string_view candidate : known) {
    const size_t longer = std::max(word.size(), candidate.size());
    if (longer - std::min(word.size(), candidate.size()) >= best_distance) continue;
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string WriteJson(const Json& value) {
  std::string out;
  Write(value, 0, out);
  out += '\n';
  return out;
}

}  // namespace pd
