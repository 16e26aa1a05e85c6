#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"

namespace pd {

/// The kinds that this build has and this machine can run, as MakeBackend takes them; without
/// "auto", and without "timed", which computes nothing.
std::vector<std::string_view> BackendKinds();

/// Why "cuda" is not among them; empty when it is.
std::string WhyNoCuda();

/// What "auto" takes here.
struct AutoDevice {
  std::string_view kind;  ///< "cuda", else "cpu"; "auto" where the build has neither.
  /// Why no GPU is taken where there may be one: CUDA's reason, when it is another than that there
  /// is no GPU or no driver.
  std::string broken_cuda;
};
AutoDevice FindAutoDevice();

/// As MakeBackend, and "timed" too (timed/timed_backend.h), which is then in the list of a refusal.
std::unique_ptr<Backend> MakeBackendOrTimed(std::string_view kind, const BackendOptions& options);

/// Warning where BackendOptions::tf32 was asked for and no GPU was taken.
inline constexpr std::string_view kTf32WithoutGpu = "tf32: no GPU is used, so it has no effect";

/// Versions of the libraries that this build's backends use: "oneDNN 2.6.3, CUDA 13.0,
/// cuDNN 9.19.0, cuBLAS 13.1.0". Needs no GPU.
std::string BackendLibraries();

}  // namespace pd
