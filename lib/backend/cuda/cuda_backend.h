#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "backend/backend.h"

namespace pd {

/// How many GPUs CUDA can use here, and the runtime's reason where there is none.
struct CudaDevices {
  int count = 0;
  std::string reason;
  bool broken = false;  ///< The reason is another than that there is no GPU or no driver.
};
CudaDevices FindCudaDevices();

/// The backend on cuDNN, cuBLAS and own kernels. `kind`: "cuda" (the GPU options.local_rank modulo
/// their number) or "cuda:N". All layouts are dense. The device is made current on the calling
/// thread, which plans and runs operations.
/// There must be a GPU. Throws kInvalidInput when N is none of them, kDevice when it cannot be
/// used.
std::unique_ptr<Backend> MakeCudaBackend(std::string_view kind, const BackendOptions& options);

/// "CUDA 13.0, cuDNN 9.19.0, cuBLAS 13.1.0"; needs no GPU.
std::string CudaLibraries();

}  // namespace pd
