#include "backend/registry.h"

#include <fmt/format.h>

#include <algorithm>

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

/// For messages: what users may choose. ref64 is for tests.
std::string KnownKinds(bool timed) {
  std::vector<std::string_view> kinds = BackendKinds();
  kinds.erase(std::remove(kinds.begin(), kinds.end(), "ref64"), kinds.end());
  if (PD_WITH_CPU || WhyNoCuda().empty()) kinds.insert(kinds.begin(), "auto");
  if (timed) kinds.emplace_back("timed");
  return fmt::format("{}", fmt::join(kinds, ", "));
}

std::unique_ptr<Backend> Make(std::string_view kind, const BackendOptions& options, bool timed) {
  const int threads = options.threads;
  PD_REQUIRE(threads >= 1, "threads: expected 1 or more, found {}", threads);
  if (kind == "auto") kind = FindAutoDevice().kind;
  std::string why = kind == "auto" || IsCuda(kind) ? WhyNoCuda() : "";
#if PD_WITH_CUDA
  if (why.empty() && IsCuda(kind)) return MakeCudaBackend(kind, options);
#endif
  if (timed && kind == "timed") return MakeTimedBackend();
  for (const Entry& entry : kEntries) {
    if (entry.kind == kind) return entry.make(threads);
  }
  if (!why.empty()) why += "; ";
  Throw(ErrorCode::kInvalidInput, "device \"{}\": {}expected one of {}", kind, why,
        KnownKinds(timed));
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

AutoDevice FindAutoDevice() {
  AutoDevice found{.kind = PD_WITH_CPU ? "cpu" : "auto", .broken_cuda = {}};
#if PD_WITH_CUDA
  const CudaDevices devices = FindCudaDevices();
  if (devices.count > 0) found.kind = "cuda";
  if (devices.broken) found.broken_cuda = devices.reason;
#endif
  return found;
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
  return Make(kind, options, false);
}

std::unique_ptr<Backend> MakeBackendOrTimed(std::string_view kind, const BackendOptions& options) {
  return Make(kind, options, true);
}

}  // namespace pd
