#include "backend/registry.h"

#include <fmt/format.h>

#include "backend/backend.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#if PD_WITH_CPU
#include "backend/cpu/cpu_backend.h"
#endif

namespace pd {
namespace {

struct Entry {
  std::string_view kind;
  std::unique_ptr<Backend> (*make)(int threads);
};

constexpr Entry kEntries[] = {
#if PD_WITH_CPU
    {"cpu", [](int threads) { return MakeCpuBackend(threads); }},
#endif
    {"ref", [](int) { return MakeRefBackend<float>(); }},
    {"ref64", [](int) { return MakeRefBackend<double>(); }},
};

}  // namespace

std::vector<std::string_view> BackendKinds() {
  std::vector<std::string_view> kinds;
  for (const Entry& entry : kEntries) kinds.push_back(entry.kind);
  return kinds;
}

std::string BackendLibraries() { return kEntries[0].make(1)->libraries(); }

std::unique_ptr<Backend> MakeBackend(std::string_view kind, const BackendOptions& options) {
  const int threads = options.threads;
  PD_REQUIRE(threads >= 1, "threads: expected 1 or more, found {}", threads);
  std::string known = fmt::format("{}", fmt::join(BackendKinds(), ", "));
#if PD_WITH_CPU
  known = "auto, " + known;
  if (kind == "auto") kind = "cpu";
#endif
  for (const Entry& entry : kEntries) {
    if (entry.kind == kind) return entry.make(threads);
  }
  PD_REQUIRE(kind != "cuda" && kind.substr(0, 5) != "cuda:",
             "device \"{}\": this build has no CUDA backend; expected one of {}", kind, known);
  Throw(ErrorCode::kInvalidInput, "device \"{}\": expected one of {}", kind, known);
}

}  // namespace pd
