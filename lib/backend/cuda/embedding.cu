#include <cmath>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

// The gradient of the weight sums rows of dy without atomics: equal indices are linked into chains
// in their order, and the threads of a chain's first element walk it.

namespace pd::cuda {
namespace {

// y[i, d] = weight[index[i], d], or NaN
__global__ void EmbeddingKernel(const float* weight, const int32_t* index, float* y, size_t count,
                                size_t rows, size_t dim) {
  PD_LOOP(i, y, count) {
    const int64_t row = index[i];
    const bool valid = row >= 0 && static_cast<size_t>(row) < rows;
    PD_LOOP(d, x, dim) {
      y[i * dim + d] = valid ? weight[static_cast<size_t>(row) * dim + d] : NAN;
    }
  }
}

// next[i]: the next element of equal index, or count; first[i]: whether there is none before.
__global__ void EmbeddingLinkKernel(const int32_t* index, int32_t* next, int32_t* first,
                                    size_t count) {
  PD_LOOP(i, x, count) {
    const int32_t own = index[i];
    size_t after = i + 1;
    while (after < count && index[after] != own) ++after;
    size_t before = i;
    while (before > 0 && index[before - 1] != own) --before;
    next[i] = static_cast<int32_t>(after);
    first[i] = before == 0 ? 1 : 0;
  }
}

// dweight[index[i], d] = Σ dy[j, d] over the chain of each first i
__global__ void EmbeddingGradientKernel(const int32_t* index, const int32_t* next,
                                        const int32_t* first, const float* dy, float* dweight,
                                        size_t count, size_t rows, size_t dim) {
  PD_LOOP(i, y, count) {
    const int64_t row = index[i];
    if (first[i] == 0 || row < 0 || static_cast<size_t>(row) >= rows) continue;
    PD_LOOP(d, x, dim) {
      double sum = 0;
      for (size_t j = i; j < count; j = static_cast<size_t>(next[j])) {
        sum += static_cast<double>(dy[j * dim + d]);
      }
      dweight[static_cast<size_t>(row) * dim + d] = static_cast<float>(sum);
    }
  }
}

}  // namespace

cudaError_t LaunchEmbedding(const float* weight, const int32_t* index, float* y,
                            EmbeddingShape shape, cudaStream_t stream) {
  if (shape.count == 0 || shape.dim == 0) return cudaSuccess;
  const RowGrid grid(1, shape.count, shape.dim);
  PD_LAUNCH(EmbeddingKernel, grid.grid, grid.block, stream, weight, index, y,
            static_cast<size_t>(shape.count), static_cast<size_t>(shape.rows),
            static_cast<size_t>(shape.dim));
  return cudaGetLastError();
}

cudaError_t LaunchEmbeddingGradient(const int32_t* index, const float* dy, float* dweight,
                                    int32_t* links, EmbeddingShape shape, cudaStream_t stream) {
  const auto count = static_cast<size_t>(shape.count);
  const auto rows = static_cast<size_t>(shape.rows);
  const auto dim = static_cast<size_t>(shape.dim);
  if (rows == 0 || dim == 0) return cudaSuccess;
  cudaError_t error = cudaMemsetAsync(dweight, 0, rows * dim * sizeof(float), stream);
  if (error != cudaSuccess || count == 0) return error;
  int32_t* next = links;
  int32_t* first = links + count;
  PD_LAUNCH(EmbeddingLinkKernel, Blocks(count, kThreads), kThreads, stream, index, next, first,
            count);
  error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  const RowGrid grid(1, shape.count, shape.dim);
  PD_LAUNCH(EmbeddingGradientKernel, grid.grid, grid.block, stream, index, next, first, dy, dweight,
            count, rows, dim);
  return cudaGetLastError();
}

}  // namespace pd::cuda
