#include "plan/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;

// One check of one value; documents are loaded when a reference first names them.
class Run {
 public:
  explicit Run(const std::string& folder) : folder_(folder) {}

  std::string File(const std::string& file, const Json& value) {
    return Check(Load(file), file, value, "");
  }

 private:
  using Keyword = std::function<std::string(const Json& argument)>;

  const Json& Load(const std::string& file) {
    const auto found = documents_.find(file);
    if (found != documents_.end()) return found->second;
    const std::string path = folder_ + "/" + file;
    return documents_.emplace(file, JsonView::Parse(ReadFile(path), path).value()).first->second;
  }

  std::string Reference(const std::string& reference, const std::string& file, const Json& value,
                        const std::string& at) {
    const size_t hash = std::min(reference.find('#'), reference.size());
    const std::string target = hash == 0 ? file : reference.substr(0, hash);
    const std::string pointer = hash == reference.size() ? "" : reference.substr(hash + 1);
    return Check(Load(target).at(Json::json_pointer(pointer)), target, value, at);
  }

  static bool HasType(const std::string& type, const Json& value) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "number") return value.is_number();
    if (type == "integer") return value.is_number_integer();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    Throw(ErrorCode::kInternal, "unknown type {}", type);
  }

  std::string Members(const Json& schema, const std::string& file, const Json& value,
                      const std::string& at) {
    const Json none = Json::object();
    const Json& known = schema.contains("properties") ? schema["properties"] : none;
    for (const auto& [key, member] : value.items()) {
      std::string fault;
      if (known.contains(key)) {
        fault = Check(known[key], file, member, at + "/" + key);
      } else if (schema.contains("additionalProperties")) {
        const Json& rest = schema["additionalProperties"];
        if (rest.is_object()) fault = Check(rest, file, member, at + "/" + key);
        if (rest == false) fault = fmt::format("{}: unknown key {}", at, key);
      }
      if (!fault.empty()) return fault;
    }
    return "";
  }

  int CountFits(const Json& options, const std::string& file, const Json& value,
                const std::string& at, std::string& last) {
    int fits = 0;
    for (const Json& option : options) {
      const std::string fault = Check(option, file, value, at);
      if (fault.empty()) ++fits;
      // The fault of the branch that went deepest says most.
      if (fault.find(':') >= last.find(':') || last.empty()) last = fault.empty() ? last : fault;
    }
    return fits;
  }

  std::string Check(const Json& schema, const std::string& file, const Json& value,
                    const std::string& at) {
    for (const auto& [keyword, argument] : schema.items()) {
      const std::string fault = Apply(keyword, argument, schema, file, value, at);
      if (!fault.empty()) return fault;
    }
    return "";
  }

  static double Size(const Json& value) { return static_cast<double>(value.size()); }

  // The keywords that compare one number of the value with the argument.
  static std::string Bound(const std::string& keyword, const Json& argument, const Json& value,
                           const std::string& at, bool& known) {
    const bool number = value.is_number(), array = value.is_array(), object = value.is_object();
    const double x = number ? value.get<double>() : 0;
    const double limit = argument.is_number() ? argument.get<double>() : 0;
    const std::map<std::string, bool> fits = {
        {"minimum", !number || x >= limit},
        {"maximum", !number || x <= limit},
        {"exclusiveMinimum", !number || x > limit},
        {"exclusiveMaximum", !number || x < limit},
        {"minItems", !array || Size(value) >= limit},
        {"maxItems", !array || Size(value) <= limit},
        {"minProperties", !object || Size(value) >= limit},
        {"maxProperties", !object || Size(value) <= limit},
        {"minLength", !value.is_string() || value.get_ref<const std::string&>().size() >= limit},
    };
    const auto found = fits.find(keyword);
    known = found != fits.end();
    if (!known || found->second) return "";
    return fmt::format("{}: {} of {}, found {}", at, keyword, argument.dump(), value.dump());
  }

  std::string Apply(const std::string& keyword, const Json& argument, const Json& schema,
                    const std::string& file, const Json& value, const std::string& at) {
    if (keyword == "$schema" || keyword == "$id" || keyword == "title" || keyword == "$defs")
      return "";
    if (keyword == "additionalProperties") return "";  // With properties, or alone in Members.
    if (keyword == "$ref") return Reference(argument, file, value, at);
    if (keyword == "type") {
      if (value.is_object()) {
        const std::string fault = Members(schema, file, value, at);
        if (!fault.empty()) return fault;
      }
      const bool fits = argument.is_array()
                            ? std::any_of(argument.begin(), argument.end(),
                                          [&](const Json& type) { return HasType(type, value); })
                            : HasType(argument, value);
      return fits ? "" : fmt::format("{}: type {}, found {}", at, argument.dump(), value.dump());
    }
    if (keyword == "properties") return "";  // With type, which every schema with properties has.
    if (keyword == "required") {
      for (const std::string key : argument) {
        if (value.is_object() && !value.contains(key)) return fmt::format("{}: no key {}", at, key);
      }
      return "";
    }
    if (keyword == "items") {
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
        const std::string fault = Check(argument, file, value[i], fmt::format("{}/{}", at, i));
        if (!fault.empty()) return fault;
      }
      return "";
    }
    if (keyword == "const" || keyword == "enum") {
      const bool fits = keyword == "const"
                            ? value == argument
                            : std::find(argument.begin(), argument.end(), value) != argument.end();
      return fits ? ""
                  : fmt::format("{}: {} {}, found {}", at, keyword, argument.dump(), value.dump());
    }
    if (keyword == "oneOf" || keyword == "anyOf") {
      std::string last;
      const int fits = CountFits(argument, file, value, at, last);
      const bool good = keyword == "oneOf" ? fits == 1 : fits > 0;
      return good ? ""
                  : fmt::format("{}: {} of the branches of {} fit; {}", at, fits, keyword, last);
    }
    bool known = false;
    const std::string fault = Bound(keyword, argument, value, at, known);
    if (!known) Throw(ErrorCode::kInternal, "{}: unknown keyword {}", file, keyword);
    return fault;
  }

  const std::string& folder_;
  std::map<std::string, Json> documents_;
};

}  // namespace

std::string SchemaChecker::Check(const std::string& kind, const JsonView& value) const {
  return Run(folder_).File(kind + ".schema.json", value.value());
}

}  // namespace pd
