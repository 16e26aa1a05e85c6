#include <cmath>
#include <limits>

#include "backend/cuda/block_sum.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

// Pooling in gather form: one thread an element of what is written, planes along y. cuDNN's pooling
// has another rounding of the output, another divisor and no rule for ties, hence our own.

namespace pd::cuda {
namespace {

constexpr unsigned kWindowThreads = 128;  ///< For one window, where windows are large.

/// PoolShape in the kernels' integers; LaunchXxx refuses what does not fit.
struct Shape2d {
  int in[2], out[2], kernel[2], stride[2], padding[2];
  bool count_include_pad;

  __host__ __device__ size_t Pixels() const { return static_cast<size_t>(in[0]) * in[1]; }
  __host__ __device__ size_t Outputs() const { return static_cast<size_t>(out[0]) * out[1]; }
};

// A kernel's parameters are scalars: this is how a Shape2d gets through.
#define PD_SHAPE_PARAMETERS                                                           \
  int in_h, int in_w, int out_h, int out_w, int kernel_h, int kernel_w, int stride_h, \
      int stride_w, int padding_h, int padding_w, bool count_include_pad
#define PD_SHAPE                                                              \
  {                                                                           \
    {in_h, in_w}, {out_h, out_w}, {kernel_h, kernel_w}, {stride_h, stride_w}, \
        {padding_h, padding_w}, count_include_pad                             \
  }
#define PD_SHAPE_ARGUMENTS(s)                                                                \
  (s).in[0], (s).in[1], (s).out[0], (s).out[1], (s).kernel[0], (s).kernel[1], (s).stride[0], \
      (s).stride[1], (s).padding[0], (s).padding[1], (s).count_include_pad

/// A range of positions along one dimension.
struct Span {
  int begin, end;
};

/// What of the image output `p` reads along dimension `d`.
__device__ Span WindowOf(const Shape2d& shape, int d, int p) {
  const int begin = p * shape.stride[d] - shape.padding[d];
  const int end = begin + shape.kernel[d];
  return {begin < 0 ? 0 : begin, end < shape.in[d] ? end : shape.in[d]};
}

/// The outputs whose windows hold position `i` of the image along dimension `d`.
__device__ Span OutputsAt(const Shape2d& shape, int d, int i) {
  const int padded = i + shape.padding[d];
  const int begin = padded < shape.kernel[d] ? 0 : (padded - shape.kernel[d]) / shape.stride[d] + 1;
  const int end = padded / shape.stride[d] + 1;
  return {begin, end < shape.out[d] ? end : shape.out[d]};
}

/// What output `p` counts along dimension `d` when it averages.
__device__ int CountOf(const Shape2d& shape, int d, int p) {
  if (!shape.count_include_pad) {
    const Span window = WindowOf(shape, d, p);
    return window.end - window.begin;
  }
  const int begin = p * shape.stride[d] - shape.padding[d];
  const int end = begin + shape.kernel[d];
  const int limit = shape.in[d] + shape.padding[d];
  return (end < limit ? end : limit) - begin;
}

__device__ float DivisorOf(const Shape2d& shape, int p, int q) {
  return static_cast<float>(CountOf(shape, 0, p)) * static_cast<float>(CountOf(shape, 1, q));
}

// y = max over the window; index = its first place, or the last NaN's
__global__ void MaxPoolKernel(const float* x, float* y, int32_t* index, size_t planes,
                              PD_SHAPE_PARAMETERS) {
  const Shape2d shape = PD_SHAPE;
  PD_LOOP(plane, y, planes) {
    const float* image = x + plane * shape.Pixels();
    PD_LOOP(i, x, shape.Outputs()) {
      const int place = static_cast<int>(i);
      const Span rows = WindowOf(shape, 0, place / shape.out[1]);
      const Span columns = WindowOf(shape, 1, place % shape.out[1]);
      int best = rows.begin * shape.in[1] + columns.begin;
      float largest = image[best];
      for (int h = rows.begin; h < rows.end; ++h) {
        for (int w = columns.begin; w < columns.end; ++w) {
          const float value = image[h * shape.in[1] + w];
          if (value > largest || std::isnan(value)) {
            best = h * shape.in[1] + w;
            largest = value;
          }
        }
      }
      y[plane * shape.Outputs() + i] = largest;
      index[plane * shape.Outputs() + i] = best;
    }
  }
}

// dx[i] = Σ dy over the outputs with index i, in their row-major order, rounded once
__global__ void MaxPoolBackwardKernel(const float* dy, const int32_t* index, float* dx,
                                      size_t planes, PD_SHAPE_PARAMETERS) {
  const Shape2d shape = PD_SHAPE;
  PD_LOOP(plane, y, planes) {
    const size_t outputs = plane * shape.Outputs();
    PD_LOOP(i, x, shape.Pixels()) {
      const int place = static_cast<int>(i);
      const Span rows = OutputsAt(shape, 0, place / shape.in[1]);
      const Span columns = OutputsAt(shape, 1, place % shape.in[1]);
      double sum = 0;
      for (int p = rows.begin; p < rows.end; ++p) {
        for (int q = columns.begin; q < columns.end; ++q) {
          const size_t output = outputs + static_cast<size_t>(p) * shape.out[1] + q;
          if (index[output] == place) sum += static_cast<double>(dy[output]);
        }
      }
      dx[plane * shape.Pixels() + i] = static_cast<float>(sum);
    }
  }
}

// y = Σ x over the window / divisor
__global__ void AveragePoolKernel(const float* x, float* y, size_t planes, PD_SHAPE_PARAMETERS) {
  const Shape2d shape = PD_SHAPE;
  PD_LOOP(plane, y, planes) {
    const float* image = x + plane * shape.Pixels();
    PD_LOOP(i, x, shape.Outputs()) {
      const int p = static_cast<int>(i) / shape.out[1];
      const int q = static_cast<int>(i) % shape.out[1];
      const Span rows = WindowOf(shape, 0, p);
      const Span columns = WindowOf(shape, 1, q);
      double sum = 0;
      for (int h = rows.begin; h < rows.end; ++h) {
        for (int w = columns.begin; w < columns.end; ++w) {
          sum += static_cast<double>(image[h * shape.in[1] + w]);
        }
      }
      y[plane * shape.Outputs() + i] =
          static_cast<float>(sum / static_cast<double>(DivisorOf(shape, p, q)));
    }
  }
}

// The same for large windows: a block a window.
__global__ void LargeAveragePoolKernel(const float* x, float* y, size_t planes,
                                       PD_SHAPE_PARAMETERS) {
  const Shape2d shape = PD_SHAPE;
  __shared__ double scratch[kWindowThreads];
  for (size_t i = blockIdx.x; i < planes * shape.Outputs(); i += gridDim.x) {
    const float* image = x + i / shape.Outputs() * shape.Pixels();
    const int place = static_cast<int>(i % shape.Outputs());
    const int p = place / shape.out[1];
    const int q = place % shape.out[1];
    const Span rows = WindowOf(shape, 0, p);
    const Span columns = WindowOf(shape, 1, q);
    const int width = columns.end - columns.begin;
    double sum = 0;
    for (int j = static_cast<int>(threadIdx.x); j < width * (rows.end - rows.begin);
         j += static_cast<int>(blockDim.x)) {
      const int place_in = (rows.begin + j / width) * shape.in[1] + columns.begin + j % width;
      sum += static_cast<double>(image[place_in]);
    }
    sum = BlockSum(sum, scratch);
    if (threadIdx.x == 0) {
      y[i] = static_cast<float>(sum / static_cast<double>(DivisorOf(shape, p, q)));
    }
  }
}

// dx[i] = Σ dy/divisor over the outputs whose windows hold i, in their row-major order
__global__ void AveragePoolBackwardKernel(const float* dy, float* dx, size_t planes,
                                          PD_SHAPE_PARAMETERS) {
  const Shape2d shape = PD_SHAPE;
  PD_LOOP(plane, y, planes) {
    const size_t outputs = plane * shape.Outputs();
    PD_LOOP(i, x, shape.Pixels()) {
      const Span rows = OutputsAt(shape, 0, static_cast<int>(i) / shape.in[1]);
      const Span columns = OutputsAt(shape, 1, static_cast<int>(i) % shape.in[1]);
      double sum = 0;
      for (int p = rows.begin; p < rows.end; ++p) {
        for (int q = columns.begin; q < columns.end; ++q) {
          const size_t output = outputs + static_cast<size_t>(p) * shape.out[1] + q;
          sum += static_cast<double>(dy[output] / DivisorOf(shape, p, q));
        }
      }
      dx[plane * shape.Pixels() + i] = static_cast<float>(sum);
    }
  }
}

/// False where a number does not fit the kernels' integers.
bool Narrow(const PoolShape& shape, Shape2d* narrow) {
  constexpr int64_t kLimit = int64_t{1} << 29;  // sums of three of them fit
  for (int d = 0; d < 2; ++d) {
    const int64_t extent = (shape.out[d] - 1) * shape.stride[d];
    for (const int64_t value : {shape.kernel[d], shape.stride[d], shape.padding[d], extent}) {
      if (value < 0 || value > kLimit) return false;
    }
    narrow->in[d] = static_cast<int>(shape.in[d]);
    narrow->out[d] = static_cast<int>(shape.out[d]);
    narrow->kernel[d] = static_cast<int>(shape.kernel[d]);
    narrow->stride[d] = static_cast<int>(shape.stride[d]);
    narrow->padding[d] = static_cast<int>(shape.padding[d]);
  }
  narrow->count_include_pad = shape.count_include_pad;
  constexpr int64_t kPlane = std::numeric_limits<int32_t>::max();
  return shape.in[0] * shape.in[1] <= kPlane && shape.out[0] * shape.out[1] <= kPlane;
}

}  // namespace

cudaError_t LaunchMaxPool(const float* x, float* y, int32_t* index, PoolShape shape,
                          cudaStream_t stream) {
  Shape2d narrow;
  if (!Narrow(shape, &narrow)) return cudaErrorInvalidValue;
  if (shape.planes == 0 || narrow.Outputs() == 0) return cudaSuccess;
  const RowGrid rows(1, shape.planes, static_cast<int64_t>(narrow.Outputs()));
  PD_LAUNCH(MaxPoolKernel, rows.grid, rows.block, stream, x, y, index,
            static_cast<size_t>(shape.planes), PD_SHAPE_ARGUMENTS(narrow));
  return cudaGetLastError();
}

cudaError_t LaunchMaxPoolBackward(const float* dy, const int32_t* index, float* dx, PoolShape shape,
                                  cudaStream_t stream) {
  Shape2d narrow;
  if (!Narrow(shape, &narrow)) return cudaErrorInvalidValue;
  if (shape.planes == 0 || narrow.Pixels() == 0) return cudaSuccess;
  const RowGrid rows(1, shape.planes, static_cast<int64_t>(narrow.Pixels()));
  PD_LAUNCH(MaxPoolBackwardKernel, rows.grid, rows.block, stream, dy, index, dx,
            static_cast<size_t>(shape.planes), PD_SHAPE_ARGUMENTS(narrow));
  return cudaGetLastError();
}

cudaError_t LaunchAveragePool(const float* x, float* y, PoolShape shape, cudaStream_t stream) {
  Shape2d narrow;
  if (!Narrow(shape, &narrow)) return cudaErrorInvalidValue;
  const auto planes = static_cast<size_t>(shape.planes);
  if (planes == 0 || narrow.Outputs() == 0) return cudaSuccess;
  const int64_t window =
      std::min(shape.kernel[0], shape.in[0]) * std::min(shape.kernel[1], shape.in[1]);
  if (window > kWindowThreads) {
    PD_LAUNCH_BARRIER(LargeAveragePoolKernel, Blocks(planes * narrow.Outputs(), 1), kWindowThreads,
                      stream, x, y, planes, PD_SHAPE_ARGUMENTS(narrow));
  } else {
    const RowGrid rows(1, shape.planes, static_cast<int64_t>(narrow.Outputs()));
    PD_LAUNCH(AveragePoolKernel, rows.grid, rows.block, stream, x, y, planes,
              PD_SHAPE_ARGUMENTS(narrow));
  }
  return cudaGetLastError();
}

cudaError_t LaunchAveragePoolBackward(const float* dy, float* dx, PoolShape shape,
                                      cudaStream_t stream) {
  Shape2d narrow;
  if (!Narrow(shape, &narrow)) return cudaErrorInvalidValue;
  if (shape.planes == 0 || narrow.Pixels() == 0) return cudaSuccess;
  const RowGrid rows(1, shape.planes, static_cast<int64_t>(narrow.Pixels()));
  PD_LAUNCH(AveragePoolBackwardKernel, rows.grid, rows.block, stream, dy, dx,
            static_cast<size_t>(shape.planes), PD_SHAPE_ARGUMENTS(narrow));
  return cudaGetLastError();
}

}  // namespace pd::cuda
