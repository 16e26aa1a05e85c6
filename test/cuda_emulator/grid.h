#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <random>

namespace cuda_emulator {

/// Runs a kernel's threads on the calling thread, blocks one after another, in an order drawn from
/// `random`. With barriers each CUDA thread of a block is a fiber, to ThreadSanitizer too: only
/// __syncthreads and __syncwarp order them. False: a barrier that can never be passed.
bool RunGrid(const char* name, dim3 grid, dim3 block, const std::function<void()>& thread,
             bool barriers, std::mt19937_64& random);

}  // namespace cuda_emulator
