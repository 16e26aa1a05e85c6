#pragma once

/// Launches of kernels that were compiled as C++. Compiled in the target of the kernels, so that
/// the sanitizers see what the kernels do. C++17.

#include <cuda_runtime_api.h>

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_emulator/inside.h"

namespace cuda_emulator {

/// A pointer argument: must lie in a live device allocation, which then cannot be freed until the
/// kernel ran. Pointers inside structs are not seen, and fault when used. The kernel may reach all
/// of it, from the pointer to its end.
struct KernelPointer {
  const void* address;
  size_t alignment;
};

/// Checks and queues a kernel; an error is for cudaGetLastError. `thread` runs one CUDA thread.
void EnqueueKernel(const char* name, dim3 grid, dim3 block, cudaStream_t stream,
                   const std::vector<KernelPointer>& pointers, std::function<void()> thread,
                   bool barriers);

void* TranslateAddress(const void* device_address);

template <typename Parameter>
void Describe(const Parameter& value, std::vector<KernelPointer>* pointers) {
  static_assert(std::is_trivially_copyable_v<Parameter>,
                "a kernel takes scalars, structs of scalars and direct device pointers");
  if constexpr (std::is_pointer_v<Parameter>) {
    using Element = std::remove_cv_t<std::remove_pointer_t<Parameter>>;
    static_assert(!std::is_pointer_v<Element>, "no pointers to pointers");
    size_t alignment = 1;
    if constexpr (!std::is_void_v<Element>) alignment = alignof(Element);
    if (value) pointers->push_back({static_cast<const void*>(value), alignment});
  }
}

template <typename Parameter>
Parameter TranslateArgument(Parameter value) {
  if constexpr (std::is_pointer_v<Parameter>) {
    return static_cast<Parameter>(TranslateAddress(static_cast<const void*>(value)));
  } else {
    return value;
  }
}

template <typename... Parameters, typename... Arguments>
void LaunchKernel(const char* name, bool barriers, void (*kernel)(Parameters...), dim3 grid,
                  dim3 block, cudaStream_t stream, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "arguments do not fit the kernel");
  const Inside inside;
  const std::tuple<Parameters...> given(static_cast<Parameters>(arguments)...);
  std::vector<KernelPointer> pointers;
  std::apply([&](const auto&... value) { (Describe(value, &pointers), ...); }, given);
  const auto translated = std::apply(
      [](const auto&... value) { return std::tuple<Parameters...>(TranslateArgument(value)...); },
      given);
  EnqueueKernel(
      name, grid, block, stream, pointers, [kernel, translated] { std::apply(kernel, translated); },
      barriers);
}

/// kernel<<<grid, block, 0, stream>>>(arguments...) for a kernel without barriers and shuffles.
template <typename... Parameters, typename... Arguments>
void Launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            cudaStream_t stream, Arguments&&... arguments) {
  LaunchKernel(name, false, kernel, grid, block, stream, std::forward<Arguments>(arguments)...);
}

/// The same for a kernel that may call __syncthreads and warp functions; slower.
template <typename... Parameters, typename... Arguments>
void LaunchWithBarriers(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                        cudaStream_t stream, Arguments&&... arguments) {
  LaunchKernel(name, true, kernel, grid, block, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace cuda_emulator
