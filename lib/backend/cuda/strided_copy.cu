#include <algorithm>
#include <numeric>

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

constexpr unsigned kTile = 32;
constexpr unsigned kTileRows = 8;  ///< Of a block; each thread takes every eighth row of a tile.

/// Two dimensions that are a transposed matrix: along `a` elements lie side by side in `to`, along
/// `b` in `from`.
struct Plane {
  int64_t a = 0, b = 0, from_a = 0, to_b = 0;
};

// The same where the neighbours in one tensor are none in the other: tiles of such a plane by way
// of shared memory, so that both are read and written in whole rows. `shape`: the other dimensions.
__global__ void TransposeKernel(float* to, const float* from, StridedShape shape, Plane plane,
                                size_t tiles) {
  __shared__ float tile[kTile * (kTile + 1)];
  const int64_t x = threadIdx.x;
  for (size_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    auto rest = static_cast<int64_t>(i);
    const int64_t a_tiles = (plane.a + kTile - 1) / kTile;
    const int64_t b_tiles = (plane.b + kTile - 1) / kTile;
    const int64_t a = rest % a_tiles * kTile;
    rest /= a_tiles;
    const int64_t b = rest % b_tiles * kTile;
    rest /= b_tiles;
    const float* source = from;
    float* target = to;
    for (int d = shape.rank - 1; d >= 0; --d) {
      const int64_t place = rest % shape.dims[d];
      rest /= shape.dims[d];
      source += place * shape.from[d];
      target += place * shape.to[d];
    }
    for (int64_t y = threadIdx.y; y < kTile; y += kTileRows) {
      if (a + y < plane.a && b + x < plane.b) {
        tile[y * (kTile + 1) + x] = source[(a + y) * plane.from_a + b + x];
      }
    }
    __syncthreads();
    for (int64_t y = threadIdx.y; y < kTile; y += kTileRows) {
      if (b + y < plane.b && a + x < plane.a) {
        target[(b + y) * plane.to_b + a + x] = tile[x * (kTile + 1) + y];
      }
    }
    __syncthreads();
  }
}

/// Takes such a plane out of `shape`, as Merged gives it, where there is one of at least half a
/// tile each way.
bool TakePlane(StridedShape* shape, Plane* plane) {
  constexpr int64_t kWorth = kTile / 2;
  const int a = shape->rank - 1;
  const auto b =
      static_cast<int>(std::find(shape->from, shape->from + shape->rank, 1) - shape->from);
  if (b >= a || shape->to[a] != 1 || shape->dims[a] < kWorth || shape->dims[b] < kWorth)
    return false;
  *plane = {shape->dims[a], shape->dims[b], shape->from[a], shape->to[b]};
  for (int64_t* of : {shape->dims, shape->from, shape->to}) std::copy(of + b + 1, of + a, of + b);
  shape->rank -= 2;
  return true;
}

/// The same elements in fewer dimensions, those far apart in `to` first: dimensions that lie in
/// both tensors as one become one.
StridedShape Merged(const StridedShape& shape) {
  int order[StridedShape::kMaxRank];
  std::iota(order, order + shape.rank, 0);
  std::stable_sort(order, order + shape.rank,
                   [&](int a, int b) { return shape.to[a] > shape.to[b]; });
  StridedShape merged;
  for (int i = 0; i < shape.rank; ++i) {
    const int d = order[i];
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
  StridedShape merged = Merged(shape);
  Plane plane;
  if (TakePlane(&merged, &plane)) {
    size_t tiles = Blocks(static_cast<size_t>(plane.a), kTile, SIZE_MAX) *
                   size_t{Blocks(static_cast<size_t>(plane.b), kTile, SIZE_MAX)};
    for (int d = 0; d < merged.rank; ++d) tiles *= static_cast<size_t>(merged.dims[d]);
    PD_LAUNCH_BARRIER(TransposeKernel, Blocks(tiles, 1), dim3(kTile, kTileRows), stream, to, from,
                      merged, plane, tiles);
    return cudaGetLastError();
  }
  const unsigned grid = Blocks(count, kThreads);
  if (count <= UINT32_MAX) {
    PD_LAUNCH((StridedCopyKernel<uint32_t>), grid, kThreads, stream, to, from, merged, count);
  } else {
    PD_LAUNCH((StridedCopyKernel<uint64_t>), grid, kThreads, stream, to, from, merged, count);
  }
  return cudaGetLastError();
}

}  // namespace pd::cuda
