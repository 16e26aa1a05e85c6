#pragma once

#include <string>

#include "base/json.h"

namespace pd {

/// Checks JSON values against the schemas of configs/schemas, as far as those go: a keyword that it
/// does not know is an error of the schema (kInternal), never ignored.
class SchemaChecker {
 public:
  /// `folder` holds KIND.schema.json.
  explicit SchemaChecker(std::string folder) : folder_(std::move(folder)) {}

  /// "" if `value` fits the schema KIND, else the first fault with its JSON pointer.
  std::string Check(const std::string& kind, const JsonView& value) const;

 private:
  std::string folder_;
};

}  // namespace pd
