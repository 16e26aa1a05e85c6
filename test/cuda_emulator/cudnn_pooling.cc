// cuDNN's pooling over 2 or 3 spatial axes.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "cudnn_common.h"

namespace cuda_emulator::library {
namespace {

bool IsMax(cudnnPoolingMode_t mode) {
  return mode == CUDNN_POOLING_MAX || mode == CUDNN_POOLING_MAX_DETERMINISTIC;
}

// One pooling as [N, C, D, H, W]: a missing depth axis has size and stride 1.
struct Pooling {
  cudnnPoolingMode_t mode;
  bool propagate_nan;
  Window windows[3];
  TensorView x, y;

  Pooling(const cudnnPoolingStruct& pooling, const TensorView& x_view, const TensorView& y_view)
      : mode(pooling.mode),
        propagate_nan(pooling.nan == CUDNN_PROPAGATE_NAN),
        x(WithDepth(x_view)),
        y(WithDepth(y_view)) {
    const int missing = 3 - pooling.spatial_rank;
    for (int i = 0; i < pooling.spatial_rank; ++i) windows[missing + i] = pooling.windows[i];
  }

  static TensorView WithDepth(const TensorView& view) {
    if (view.rank == 5) return view;
    return {5,
            {view.dims[0], view.dims[1], 1, view.dims[2], view.dims[3]},
            {view.strides[0], view.strides[1], 1, view.strides[2], view.strides[3]}};
  }
};

// A window's part inside the input, as offsets into one [D, H, W] slice of x.
void InsideWindow(const Pooling& pooling, const int64_t out[3], std::vector<int64_t>* offsets) {
  int64_t from[3], to[3];
  for (int i = 0; i < 3; ++i) {
    const Window& window = pooling.windows[i];
    const int64_t start = out[i] * window.stride - window.padding;
    from[i] = std::max<int64_t>(start, 0);
    to[i] = std::min(start + window.size, pooling.x.dims[i + 2]);
  }
  offsets->clear();
  const int64_t* const strides = pooling.x.strides + 2;
  for (int64_t d = from[0]; d < to[0]; ++d) {
    for (int64_t h = from[1]; h < to[1]; ++h) {
      for (int64_t w = from[2]; w < to[2]; ++w) {
        offsets->push_back(d * strides[0] + h * strides[1] + w * strides[2]);
      }
    }
  }
}

// f(offset of x's slice, offset of y's element, offsets of the window's inside in the slice).
template <class F>
void ForEachWindow(const Pooling& pooling, F&& f) {
  std::vector<int64_t> inside;
  const TensorView &x = pooling.x, &y = pooling.y;
  for (int64_t n = 0; n < y.dims[0]; ++n) {
    for (int64_t c = 0; c < y.dims[1]; ++c) {
      int64_t out[3] = {};
      for (out[0] = 0; out[0] < y.dims[2]; ++out[0]) {
        for (out[1] = 0; out[1] < y.dims[3]; ++out[1]) {
          for (out[2] = 0; out[2] < y.dims[4]; ++out[2]) {
            InsideWindow(pooling, out, &inside);
            f(n * x.strides[0] + c * x.strides[1],
              n * y.strides[0] + c * y.strides[1] + out[0] * y.strides[2] + out[1] * y.strides[3] +
                  out[2] * y.strides[4],
              inside);
          }
        }
      }
    }
  }
}

double Divisor(const Pooling& pooling, size_t inside) {
  if (pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING) {
    return static_cast<double>(inside);
  }
  int64_t size = 1;
  for (const Window& window : pooling.windows) size *= window.size;
  return static_cast<double>(size);
}

double PooledValue(const Pooling& pooling, const float* slice, const std::vector<int64_t>& inside) {
  if (!IsMax(pooling.mode)) {
    double sum = 0;
    for (const int64_t at : inside) sum += slice[at];
    return sum / Divisor(pooling, inside.size());
  }
  double best = -std::numeric_limits<double>::infinity();
  for (const int64_t at : inside) {
    const double value = slice[at];
    if (std::isnan(value) && pooling.propagate_nan) return value;
    if (value > best) best = value;
  }
  return best;
}

// Which of equal maxima takes the gradient is not documented. CUDNN_POOLING_MAX, documented as
// non-deterministic, varies with the seed; the deterministic mode takes the first, or with
// CUDA_EMULATOR_POOLING_TIES=last the last.
size_t ChooseTie(const Pooling& pooling, size_t count, uint64_t seed) {
  if (pooling.mode == CUDNN_POOLING_MAX) return static_cast<size_t>(seed % count);
  const char* const ties = std::getenv("CUDA_EMULATOR_POOLING_TIES");
  return ties != nullptr && std::strcmp(ties, "last") == 0 ? count - 1 : 0;
}

struct PoolingGradient {
  const float *x, *y, *dy;
  float* dx;
  int64_t dx_extent;
  uint64_t seed;
};

// x and dx have the same strides, y and dy too. A y that is not x's maximum gives NaN.
void RunBackward(const Pooling& pooling, Blend blend, const PoolingGradient& data) {
  std::vector<double> gradient(static_cast<size_t>(data.dx_extent));
  std::vector<int64_t> ties;
  uint64_t seed = data.seed;
  ForEachWindow(pooling, [&](int64_t slice, int64_t out, const std::vector<int64_t>& inside) {
    const double dy = data.dy[out];
    if (!IsMax(pooling.mode)) {
      const double share = dy / Divisor(pooling, inside.size());
      for (const int64_t at : inside) gradient[static_cast<size_t>(slice + at)] += share;
      return;
    }
    ties.clear();
    for (const int64_t at : inside) {
      if (data.x[slice + at] == data.y[out]) ties.push_back(at);
    }
    if (ties.empty()) {
      for (const int64_t at : inside) gradient[static_cast<size_t>(slice + at)] = NAN;
      return;
    }
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    gradient[static_cast<size_t>(slice + ties[ChooseTie(pooling, ties.size(), seed >> 33)])] += dy;
  });
  ForEachIndex<1>(pooling.x.rank, pooling.x.dims, {pooling.x.strides}, [&](const int64_t* at) {
    blend(gradient[static_cast<size_t>(at[0])], &data.dx[at[0]]);
  });
}

void SetPooling(cudnnPoolingStruct* descriptor, cudnnPoolingStruct pooling) {
  Require(pooling.mode >= CUDNN_POOLING_MAX && pooling.mode <= CUDNN_POOLING_MAX_DETERMINISTIC,
          Fault::kBadParam, "mode", "is no cudnnPoolingMode_t");
  Require(ValidNan(pooling.nan), Fault::kBadParam, "maxpoolingNanOpt", "is no option");
  for (int i = 0; i < pooling.spatial_rank; ++i) {
    const Window& window = pooling.windows[i];
    Require(window.size > 0, Fault::kBadParam, "window", "is zero or negative");
    Require(window.stride > 0, Fault::kBadParam, "stride", "is zero or negative");
    Require(window.padding >= 0, Fault::kBadParam, "padding", "is negative");
    // Otherwise windows may lie wholly in the padding; their value is not documented.
    Require(window.padding < window.size, Fault::kNotSupported, "padding",
            "is not less than the window");
  }
  pooling.set = true;
  Writable(descriptor, "poolingDesc") = pooling;
}

// The output of dimensions outputDim = 1 + (inputDim + 2 · padding - windowDim) / stride.
void OutputDims(const cudnnPoolingStruct& pooling, const TensorView& x, int64_t* dims) {
  Require(x.rank == pooling.spatial_rank + 2, Fault::kBadParam, "tensor",
          "has another number of spatial axes than poolingDesc");
  for (int i = 0; i < x.rank; ++i) {
    dims[i] = i < 2 ? x.dims[i] : pooling.windows[i - 2].Outputs(x.dims[i]);
    Require(dims[i] > 0, Fault::kBadParam, "window", "is larger than the padded input");
  }
}

void CheckPooled(const cudnnPoolingStruct& pooling, const TensorView& x, const TensorView& y) {
  Require(pooling.spatial_rank == 2 || pooling.spatial_rank == 3, Fault::kNotSupported,
          "poolingDesc", "has neither 2 nor 3 spatial axes");
  int64_t dims[kMaxRank] = {};
  OutputDims(pooling, x, dims);
  Require(y.rank == x.rank, Fault::kBadParam, "yDesc", "has another number of dimensions");
  for (int i = 0; i < x.rank; ++i) {
    // One more output, rounding up, is used by well-known programs and never refused in the
    // documentation: its last window must begin inside the input. What counts as padding there is
    // not documented.
    bool right = y.dims[i] == dims[i];
    if (!right && i >= 2 && y.dims[i] == dims[i] + 1 &&
        pooling.mode != CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING) {
      const Window& window = pooling.windows[i - 2];
      right = dims[i] * window.stride - window.padding < x.dims[i];
    }
    Require(right, Fault::kBadParam, "yDesc", "has not the output's dimensions");
  }
  const int last = x.rank - 1;
  Require(
      (x.strides[last] == 1 || x.dims[last] == 1) && (y.strides[last] == 1 || y.dims[last] == 1),
      Fault::kNotSupported, "wStride", "of an input or output is not 1");
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* poolingDesc) {
  return CreateDescriptor(__func__, poolingDesc);
}

cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t poolingDesc) {
  return DestroyDescriptor(__func__, poolingDesc);
}

cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t poolingDesc,
                                          cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t maxpoolingNanOpt, int windowHeight,
                                          int windowWidth, int verticalPadding,
                                          int horizontalPadding, int verticalStride,
                                          int horizontalStride) {
  return CudnnCall(__func__, [&] {
    cudnnPoolingStruct pooling{true, mode, maxpoolingNanOpt, 2, {}};
    pooling.windows[0] = {windowHeight, verticalPadding, verticalStride, 1};
    pooling.windows[1] = {windowWidth, horizontalPadding, horizontalStride, 1};
    SetPooling(poolingDesc, pooling);
  });
}

cudnnStatus_t cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t poolingDesc,
                                          const cudnnPoolingMode_t mode,
                                          const cudnnNanPropagation_t maxpoolingNanOpt, int nbDims,
                                          const int windowDimA[], const int paddingA[],
                                          const int strideA[]) {
  return CudnnCall(__func__, [&] {
    Require(nbDims > 0 && nbDims <= CUDNN_DIM_MAX - 2, Fault::kNotSupported, "nbDims",
            "is outside [1, CUDNN_DIM_MAX - 2]");
    RequireHost(windowDimA, "windowDimA");
    RequireHost(paddingA, "paddingA");
    RequireHost(strideA, "strideA");
    cudnnPoolingStruct pooling{true, mode, maxpoolingNanOpt, nbDims, {}};
    for (int i = 0; i < nbDims; ++i) {
      pooling.windows[i] = {windowDimA[i], paddingA[i], strideA[i], 1};
    }
    SetPooling(poolingDesc, pooling);
  });
}

cudnnStatus_t cudnnGetPooling2dDescriptor(const cudnnPoolingDescriptor_t poolingDesc,
                                          cudnnPoolingMode_t* mode,
                                          cudnnNanPropagation_t* maxpoolingNanOpt,
                                          int* windowHeight, int* windowWidth, int* verticalPadding,
                                          int* horizontalPadding, int* verticalStride,
                                          int* horizontalStride) {
  return CudnnCall(__func__, [&] {
    const cudnnPoolingStruct& pooling = Described(poolingDesc, "poolingDesc");
    Require(pooling.spatial_rank == 2, Fault::kBadParam, "poolingDesc", "is not 2D");
    Put(mode, pooling.mode);
    Put(maxpoolingNanOpt, pooling.nan);
    Put(windowHeight, static_cast<int>(pooling.windows[0].size));
    Put(windowWidth, static_cast<int>(pooling.windows[1].size));
    Put(verticalPadding, static_cast<int>(pooling.windows[0].padding));
    Put(horizontalPadding, static_cast<int>(pooling.windows[1].padding));
    Put(verticalStride, static_cast<int>(pooling.windows[0].stride));
    Put(horizontalStride, static_cast<int>(pooling.windows[1].stride));
  });
}

cudnnStatus_t cudnnGetPoolingNdForwardOutputDim(const cudnnPoolingDescriptor_t poolingDesc,
                                                const cudnnTensorDescriptor_t inputTensorDesc,
                                                int nbDims, int outputTensorDimA[]) {
  return CudnnCall(__func__, [&] {
    const TensorView& x = Described(inputTensorDesc, "inputTensorDesc").view;
    int64_t dims[kMaxRank] = {};
    OutputDims(Described(poolingDesc, "poolingDesc"), x, dims);
    Require(nbDims == x.rank, Fault::kBadParam, "nbDims", "is not the input's");
    RequireHost(outputTensorDimA, "outputTensorDimA");
    for (int i = 0; i < nbDims; ++i) outputTensorDimA[i] = static_cast<int>(dims[i]);
  });
}

cudnnStatus_t cudnnGetPooling2dForwardOutputDim(const cudnnPoolingDescriptor_t poolingDesc,
                                                const cudnnTensorDescriptor_t inputTensorDesc,
                                                int* n, int* c, int* h, int* w) {
  return CudnnCall(__func__, [&] {
    const TensorView& x = Described(inputTensorDesc, "inputTensorDesc").view;
    const cudnnPoolingStruct& pooling = Described(poolingDesc, "poolingDesc");
    Require(pooling.spatial_rank == 2, Fault::kBadParam, "poolingDesc", "is not 2D");
    int64_t dims[kMaxRank] = {};
    OutputDims(pooling, x, dims);
    int* const results[] = {n, c, h, w};
    for (int i = 0; i < 4; ++i) {
      RequireHost(results[i], "n, c, h or w");
      *results[i] = static_cast<int>(dims[i]);
    }
  });
}

// y = alpha · pool(x) + beta y.
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t poolingDesc,
                                  const void* alpha, const cudnnTensorDescriptor_t xDesc,
                                  const void* x, const void* beta,
                                  const cudnnTensorDescriptor_t yDesc, void* y) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const cudnnPoolingStruct& descriptor = Described(poolingDesc, "poolingDesc");
    const TensorView x_view = FloatTensor(xDesc, "xDesc"), y_view = FloatResult(yDesc, "yDesc");
    CheckPooled(descriptor, x_view, y_view);
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnPoolingForward");
    const float* in = operation.In(x, x_view, "x");
    float* out = operation.Out(y, y_view, "y");
    const Pooling pooling(descriptor, x_view, y_view);
    operation.Launch([=] {
      ForEachWindow(pooling, [&](int64_t slice, int64_t at, const std::vector<int64_t>& inside) {
        blend(PooledValue(pooling, in + slice, inside), &out[at]);
      });
    });
  });
}

// dx = alpha · the gradient + beta dx. x and y must be those of the forward call.
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t poolingDesc,
                                   const void* alpha, const cudnnTensorDescriptor_t yDesc,
                                   const void* y, const cudnnTensorDescriptor_t dyDesc,
                                   const void* dy, const cudnnTensorDescriptor_t xDesc,
                                   const void* x, const void* beta,
                                   const cudnnTensorDescriptor_t dxDesc, void* dx) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const cudnnPoolingStruct& descriptor = Described(poolingDesc, "poolingDesc");
    const TensorView y_view = FloatTensor(yDesc, "yDesc"), dy_view = FloatTensor(dyDesc, "dyDesc");
    const TensorView x_view = FloatTensor(xDesc, "xDesc"), dx_view = FloatResult(dxDesc, "dxDesc");
    CheckPooled(descriptor, x_view, y_view);
    Require(y_view.SameDims(dy_view) && y_view.SameStrides(dy_view), Fault::kBadParam, "dyDesc",
            "has other dimensions or strides than yDesc");
    Require(x_view.SameDims(dx_view) && x_view.SameStrides(dx_view), Fault::kBadParam, "dxDesc",
            "has other dimensions or strides than xDesc");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnPoolingBackward");
    const float* y_data = operation.In(y, y_view, "y");
    const float* dy_data = operation.In(dy, dy_view, "dy");
    const float* x_data = operation.In(x, x_view, "x");
    float* dx_data = operation.Out(dx, dx_view, "dx");
    const Pooling pooling(descriptor, x_view, y_view);
    const PoolingGradient data{x_data, y_data, dy_data, dx_data, dx_view.Extent(), NextRandom()};
    operation.Launch([=] { RunBackward(pooling, blend, data); });
  });
}

}  // extern "C"
