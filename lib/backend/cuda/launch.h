#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#if PD_CUDA_EMULATED
#include <cuda_emulator/launch.h>
#endif

/// How .cu files launch kernels: nothing else in the project knows `<<<>>>`, so that the same
/// source also compiles as C++ against test/cuda_emulator. A kernel's parameters are scalars,
/// structs of them, and direct pointers to device memory. A template goes in parentheses:
///   PD_LAUNCH((SgdKernel<true, false>), grid, block, stream, w, g, m, w_out, count, …);
/// The caller returns cudaGetLastError() next. Kernels that use __syncthreads need
/// PD_LAUNCH_BARRIER (under nvcc the two are the same).
#if PD_CUDA_EMULATED
#define PD_LAUNCH(kernel, grid, block, stream, ...) \
  ::cuda_emulator::Launch(#kernel, kernel, grid, block, stream, __VA_ARGS__)
#define PD_LAUNCH_BARRIER(kernel, grid, block, stream, ...) \
  ::cuda_emulator::LaunchWithBarriers(#kernel, kernel, grid, block, stream, __VA_ARGS__)
#else
#define PD_LAUNCH(kernel, grid, block, stream, ...) \
  kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
#define PD_LAUNCH_BARRIER(kernel, grid, block, stream, ...) \
  PD_LAUNCH(kernel, grid, block, stream, __VA_ARGS__)
#endif

namespace pd::cuda {

// Grids are bounded, and each kernel's loop steps by the size of its grid, so any count works.

constexpr unsigned kThreads = 256;  ///< Of a block, where nothing else asks for another number.
constexpr size_t kMaxBlocks = 8192;

/// The smallest power of two >= count, at most `most` (a power of two).
inline unsigned PowerOfTwo(int64_t count, unsigned most) {
  unsigned power = 1;
  while (power < most && static_cast<int64_t>(power) < count) power *= 2;
  return power;
}

/// Blocks of `per_block` that `count` things need: at least 1, at most `most`.
inline unsigned Blocks(size_t count, size_t per_block, size_t most = kMaxBlocks) {
  const size_t blocks = count / per_block + (count % per_block != 0 ? 1 : 0);
  return static_cast<unsigned>(std::min(std::max<size_t>(blocks, 1), most));
}

/// Where a thread starts in a loop over `count` things along one dimension, and its step.
#define PD_LOOP(i, dim, count)                                                      \
  for (size_t i = size_t{blockIdx.dim} * blockDim.dim + threadIdx.dim; i < (count); \
       i += size_t{gridDim.dim} * blockDim.dim)

/// A grid for [outer, rows, width] with width along x, so that neighbours in memory are neighbours
/// in a warp, also where rows are shorter than one.
struct RowGrid {
  dim3 grid, block;

  RowGrid(int64_t outer, int64_t rows, int64_t width) {
    block.x = PowerOfTwo(width, kThreads);
    block.y = PowerOfTwo(rows, kThreads / block.x);
    grid.x = Blocks(static_cast<size_t>(width), block.x, 1024);
    grid.y = Blocks(static_cast<size_t>(rows), block.y, 8192);
    grid.z = Blocks(static_cast<size_t>(outer), 1, 1024);
  }
};

}  // namespace pd::cuda
