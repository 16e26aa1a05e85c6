#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace pd::cuda {
namespace {

// to[Σ i·to] = from[Σ i·from]. Index: 32 bits where they count all elements, as division costs.
template <typename Index>
__global__ void StridedCopyKernel(float* to, const float* from, StridedShape shape, size_t count) {
  PD_LOOP(i, x, count) {
    auto rest = static_cast<Index>(i);
    int64_t source = 0;
    int64_t target = 0;
    for (int d = shape.rank - 1; d > 0; --d) {
      const auto extent = static_cast<Index>(shape.dims[d]);
      const int64_t place = static_cast<int64_t>(rest % extent);
      rest /= extent;
      source += place * shape.from[d];
      target += place * shape.to[d];
    }
    to[target + static_cast<int64_t>(rest) * shape.to[0]] =
        from[source + static_cast<int64_t>(rest) * shape.from[0]];
  }
}

/// The same elements in fewer dimensions: those that lie in both tensors as one become one.
StridedShape Merged(const StridedShape& shape) {
  StridedShape merged;
  for (int d = 0; d < shape.rank; ++d) {
    if (shape.dims[d] == 1) continue;
    const int last = merged.rank - 1;
    if (last >= 0 && merged.from[last] == shape.from[d] * shape.dims[d] &&
        merged.to[last] == shape.to[d] * shape.dims[d]) {
      merged.dims[last] *= shape.dims[d];
      merged.from[last] = shape.from[d];
      merged.to[last] = shape.to[d];
      continue;
    }
    merged.dims[merged.rank] = shape.dims[d];
    merged.from[merged.rank] = shape.from[d];
    merged.to[merged.rank] = shape.to[d];
    ++merged.rank;
  }
  return merged;
}

}  // namespace

cudaError_t LaunchStridedCopy(float* to, const float* from, const StridedShape& shape,
                              cudaStream_t stream) {
  size_t count = 1;
  for (int d = 0; d < shape.rank; ++d) count *= static_cast<size_t>(shape.dims[d]);
  if (count == 0) return cudaSuccess;
  const StridedShape merged = Merged(shape);
  const unsigned grid = Blocks(count, kThreads);
  if (count <= UINT32_MAX) {
    PD_LAUNCH((StridedCopyKernel<uint32_t>), grid, kThreads, stream, to, from, merged, count);
  } else {
    PD_LAUNCH((StridedCopyKernel<uint64_t>), grid, kThreads, stream, to, from, merged, count);
  }
  return cudaGetLastError();
}

}  // namespace pd::cuda
