#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pd {

/// A place in a parsed JSON document. Every read is strict, and every complaint is one line that
/// names file, JSON pointer, what was expected and what was found (Error, kInvalidInput).
/// Owns a share of the document, so a view outlives the reader that made it.
class JsonView {
 public:
  /// Parses `text`; `file` is the name used in complaints. Refuses duplicate keys, NaN, numbers
  /// out of range, nesting deeper than 100, anything after the value, and UTF-16. A byte order mark
  /// of UTF-8 is passed over.
  static JsonView Parse(std::string_view text, const std::string& file);

  /// Refuses a value that is not an object, a key not in `allowed` (with the nearest allowed one as
  /// a suggestion). `owner`, as in "text data": whose keys they are, where others have more.
  void CheckKeys(std::initializer_list<std::string_view> allowed,
                 std::string_view owner = {}) const;
  void CheckKeys(const std::vector<std::string_view>& allowed, std::string_view owner = {}) const;

  bool IsObject() const;
  bool IsArray() const;
  bool IsString() const;
  bool IsNumber() const;
  bool IsNull() const;

  /// The member `key`; refused when absent.
  JsonView At(std::string_view key) const;
  /// The member `key`, or nothing when absent.
  std::optional<JsonView> Find(std::string_view key) const;
  /// The elements of an array.
  std::vector<JsonView> Items() const;
  /// The members of an object, in the document's order.
  std::vector<std::pair<std::string, JsonView>> Members() const;

  /// An integer in [min, max]; 2.5 and 1e3 are refused.
  int64_t Int(int64_t min, int64_t max) const;
  /// A finite number in [min, max].
  double Number(double min, double max) const;
  bool Bool() const;
  /// A string of printable UTF-8 characters, not empty.
  std::string String() const;

  /// Throws "FILE: POINTER: expected EXPECTED, found FOUND", FOUND being this value.
  [[noreturn]] void Fail(const std::string& expected) const;
  [[noreturn]] void Fail(const std::string& expected, const std::string& found) const;

  const std::string& file() const;
  const std::string& pointer() const { return pointer_; }
  const nlohmann::ordered_json& value() const { return *value_; }

 private:
  struct Document;
  JsonView(std::shared_ptr<const Document> document, const nlohmann::ordered_json* value,
           std::string pointer);

  std::shared_ptr<const Document> document_;
  const nlohmann::ordered_json* value_;
  std::string pointer_;
};

/// Whether `text` was meant as a JSON document with an object or array, or as nothing at all.
bool LooksLikeJson(std::string_view text);

/// Refuses a document whose "format" is not "pipedream.KIND/1".
void CheckFormat(const JsonView& view, std::string_view kind);

/// The nearest of `known` to `word` by edit distance, or "" when none is near.
std::string Nearest(std::string_view word, const std::vector<std::string_view>& known);

/// `value` as strict JSON text: two-space indentation, arrays of scalars on one line, a final
/// newline. The same value gives the same bytes.
std::string WriteJson(const nlohmann::ordered_json& value);

}  // namespace pd
