#include "backend/registry.h"

#include <fmt/format.h>

#include "backend/backend.h"
#include "backend/ref/ref_backend.h"
#include "backend/timed/timed_backend.h"
#include "base/error.h"
#if PD_WITH_CPU
#include "backend/cpu/cpu_backend.h"
#endif
#if PD_WITH_CUDA
#include "backend/cuda/cuda_backend.h"
#endif

namespace pd {
namespace {

struct Entry {
  std::string_view kind;
  std::unique_ptr<Backend> (*make)(int threads);
};

// Those that every machine can run.
constexpr Entry kEntries[] = {
#if PD_WITH_CPU
    {"cpu", [](int threads) { return MakeCpuBackend(threads); }},
#endif
    {"ref", [](int) { return MakeRefBackend<float>(); }},
    {"ref64", [](int) { return MakeRefBackend<double>(); }},
};

bool IsCuda(std::string_view kind) { return kind == "cuda" || kind.substr(0, 5) == "cuda:"; }

/// For messages.
std::string KnownKinds() {
  std::string known = fmt::format("{}, timed", fmt::join(BackendKinds(), ", "));
  return PD_WITH_CPU || WhyNoCuda().empty() ? "auto, " + known : known;
}

}  // namespace

std::string WhyNoCuda() {
#if PD_WITH_CUDA
  const CudaDevices devices = FindCudaDevices();
  return devices.count > 0 ? "" : "no CUDA device: " + devices.reason;
#else
  return "this build has no CUDA backend";
#endif
}

std::vector<std::string_view> BackendKinds() {
  std::vector<std::string_view> kinds;
  for (const Entry& entry : kEntries) kinds.push_back(entry.kind);
  if (WhyNoCuda().empty()) kinds.push_back("cuda");
  return kinds;
}

std::string BackendLibraries() {
  std::string libraries;
#if PD_WITH_CPU
  libraries = MakeCpuBackend(1)->libraries();
#endif
#if PD_WITH_CUDA
  libraries += (libraries.empty() ? "" : ", ") + CudaLibraries();
#endif
  return libraries.empty() ? "none" : libraries;
}

std::unique_ptr<Backend> MakeBackend(std::string_view kind, const BackendOptions& options) {
  const int threads = options.threads;
  PD_REQUIRE(threads >= 1, "threads: expected 1 or more, found {}", threads);
  std::string why = kind == "auto" || IsCuda(kind) ? WhyNoCuda() : "";
#if PD_WITH_CUDA
  if (why.empty() && kind == "auto") kind = "cuda";
  if (why.empty() && IsCuda(kind)) return MakeCudaBackend(kind, options);
#endif
#if PD_WITH_CPU
  if (kind == "auto") kind = "cpu";
#endif
  if (kind == "timed") return MakeTimedBackend();
  for (const Entry& entry : kEntries) {
    if (entry.kind == kind) return entry.make(threads);
  }
  if (!why.empty()) why += "; ";
  Throw(ErrorCode::kInvalidInput, "device \"{}\": {}expected one of {}", kind, why, KnownKinds());
}

}  // namespace pd
