#include "partition/replicas.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"

namespace pd {
namespace {

constexpr size_t kLeastRun = 5;
constexpr int kMost = 4096;

}  // namespace

std::string FormatReplicas(const std::vector<int>& replicas) {
  std::string out;
  const auto add = [&](const std::string& item) {
    if (!out.empty()) out += '-';
    out += item;
  };
  for (size_t begin = 0, end = 0; begin < replicas.size(); begin = end) {
    while (end < replicas.size() && replicas[end] == replicas[begin]) ++end;
    if (end - begin >= kLeastRun) {
      add(fmt::format("{}x{}", replicas[begin], end - begin));
    } else {
      for (size_t i = begin; i < end; ++i) add(fmt::format("{}", replicas[i]));
    }
  }
  return out;
}

std::vector<int> ParseReplicas(std::string_view text, std::string_view what) {
  const auto number = [&](std::string_view digits) {
    try {
      return static_cast<int>(ParseInt(digits, what, 1, kMost));
    } catch (const Error&) {
      Throw(ErrorCode::kInvalidInput,
            "{}: expected replicas of the stages, each from 1 to {}, such as 3,1 or 2-1x8, found "
            "\"{}\"",
            what, kMost, text);
    }
  };
  std::vector<int> replicas;
  for (std::string_view rest = text;;) {
    const size_t end = rest.find_first_of(",-");
    const std::string_view item = rest.substr(0, end);
    const size_t times = item.find('x');
    const int run = times == std::string_view::npos ? 1 : number(item.substr(times + 1));
    replicas.insert(replicas.end(), static_cast<size_t>(run), number(item.substr(0, times)));
    PD_REQUIRE(replicas.size() <= kMost, "{}: expected at most {} stages, found \"{}\"", what,
               kMost, text);
    if (end == std::string_view::npos) return replicas;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace pd
