#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace cuda_emulator {

/// Makes `error` the calling thread's last error, and returns it.
cudaError_t Result(cudaError_t error);

/// Refuses, and returns the code the documentation gives for it.
cudaError_t RefuseWith(const char* api, const std::string& why, cudaError_t error);

/// The error of a kernel that went wrong, or success.
cudaError_t StickyError();

}  // namespace cuda_emulator
