#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pd {

/// The kinds that this build has and this machine can run, as MakeBackend takes them; without
/// "auto", and without "timed", which computes nothing.
std::vector<std::string_view> BackendKinds();

/// Why "cuda" is not among them; empty when it is.
std::string WhyNoCuda();

/// Versions of the libraries that this build's backends use: "oneDNN 2.6.3, CUDA 13.0,
/// cuDNN 9.19.0, cuBLAS 13.1.0". Needs no GPU.
std::string BackendLibraries();

}  // namespace pd
