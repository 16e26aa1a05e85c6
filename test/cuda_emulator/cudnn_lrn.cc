// cuDNN's local response normalisation across channels.
//
// With s[c] = k + alpha / n · Σ x² over the channels c - lookBehind … c + lookAhead (lookBehind =
// ⌊(n - 1) / 2⌋, lookAhead = n - lookBehind - 1): y[c] = x[c] / s[c]^beta.

#include <cmath>
#include <vector>

#include "cudnn_common.h"

namespace cuda_emulator::library {
namespace {

struct Lrn {
  int64_t n, behind, ahead;
  double alpha, beta, k;  // "cast to tensor data type"

  explicit Lrn(const cudnnLRNStruct& lrn)
      : n(lrn.n),
        behind((lrn.n - 1) / 2),
        ahead(n - behind - 1),
        alpha(static_cast<float>(lrn.alpha)),
        beta(static_cast<float>(lrn.beta)),
        k(static_cast<float>(lrn.k)) {}

  // s[c] for all channels, which lie `stride` apart.
  std::vector<double> Scales(const float* x, int64_t channels, int64_t stride) const {
    std::vector<double> scales(static_cast<size_t>(channels));
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t i = std::max<int64_t>(c - behind, 0); i <= std::min(c + ahead, channels - 1);
           ++i) {
        sum += static_cast<double>(x[i * stride]) * x[i * stride];
      }
      scales[static_cast<size_t>(c)] = k + alpha / static_cast<double>(n) * sum;
    }
    return scales;
  }
};

void CheckLayout(const TensorView& view, const char* name) {
  Require(view.rank == 4 || view.PackedFrom(2), Fault::kBadParam, name,
          "is 5D and not DHW-packed NCDHW");
}

TensorView OneChannel(TensorView view) {
  view.dims[1] = 1;
  return view;
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnCreateLRNDescriptor(cudnnLRNDescriptor_t* normDesc) {
  return CreateDescriptor(__func__, normDesc);
}

cudnnStatus_t cudnnDestroyLRNDescriptor(cudnnLRNDescriptor_t lrnDesc) {
  return DestroyDescriptor(__func__, lrnDesc);
}

cudnnStatus_t cudnnSetLRNDescriptor(cudnnLRNDescriptor_t normDesc, unsigned lrnN, double lrnAlpha,
                                    double lrnBeta, double lrnK) {
  return CudnnCall(__func__, [&] {
    Require(lrnN >= CUDNN_LRN_MIN_N && lrnN <= CUDNN_LRN_MAX_N, Fault::kBadParam, "lrnN",
            "is outside [CUDNN_LRN_MIN_N, CUDNN_LRN_MAX_N]");
    Require(lrnK >= CUDNN_LRN_MIN_K, Fault::kBadParam, "lrnK", "is less than CUDNN_LRN_MIN_K");
    Require(lrnBeta >= CUDNN_LRN_MIN_BETA, Fault::kBadParam, "lrnBeta",
            "is less than CUDNN_LRN_MIN_BETA");
    Require(std::isfinite(lrnAlpha), Fault::kBadParam, "lrnAlpha", "is not finite");
    Writable(normDesc, "normDesc") = {true, lrnN, lrnAlpha, lrnBeta, lrnK};
  });
}

cudnnStatus_t cudnnGetLRNDescriptor(cudnnLRNDescriptor_t normDesc, unsigned* lrnN, double* lrnAlpha,
                                    double* lrnBeta, double* lrnK) {
  return CudnnCall(__func__, [&] {
    const cudnnLRNStruct& lrn = Described(normDesc, "normDesc");
    Put(lrnN, lrn.n);
    Put(lrnAlpha, lrn.alpha);
    Put(lrnBeta, lrn.beta);
    Put(lrnK, lrn.k);
  });
}

cudnnStatus_t cudnnLRNCrossChannelForward(cudnnHandle_t handle, cudnnLRNDescriptor_t normDesc,
                                          cudnnLRNMode_t lrnMode, const void* alpha,
                                          const cudnnTensorDescriptor_t xDesc, const void* x,
                                          const void* beta, const cudnnTensorDescriptor_t yDesc,
                                          void* y) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const Lrn lrn(Described(normDesc, "normDesc"));
    Require(lrnMode == CUDNN_LRN_CROSS_CHANNEL_DIM1, Fault::kBadParam, "lrnMode", "is no mode");
    const TensorView x_view = FloatTensor(xDesc, "xDesc"), y_view = FloatResult(yDesc, "yDesc");
    Require(x_view.SameDims(y_view), Fault::kNotSupported, "xDesc",
            "has other dimensions than yDesc");
    CheckLayout(x_view, "xDesc");
    CheckLayout(y_view, "yDesc");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnLRNCrossChannelForward");
    const float* in = operation.In(x, x_view, "x");
    float* out = operation.Out(y, y_view, "y");
    operation.Launch([=] {
      const TensorView places = OneChannel(x_view);
      const int64_t channels = x_view.dims[1], stride = x_view.strides[1];
      ForEachIndex<2>(
          places.rank, places.dims, {x_view.strides, y_view.strides}, [&](const int64_t* at) {
            const auto scales = lrn.Scales(in + at[0], channels, stride);
            for (int64_t c = 0; c < channels; ++c) {
              blend(in[at[0] + c * stride] * std::pow(scales[static_cast<size_t>(c)], -lrn.beta),
                    &out[at[1] + c * y_view.strides[1]]);
            }
          });
    });
  });
}

// dx[j] = dy[j] / s[j]^beta - 2 alpha beta / n · x[j] · Σ dy[i] y[i] / s[i] over the i whose window
// holds j.
cudnnStatus_t cudnnLRNCrossChannelBackward(cudnnHandle_t handle, cudnnLRNDescriptor_t normDesc,
                                           cudnnLRNMode_t lrnMode, const void* alpha,
                                           const cudnnTensorDescriptor_t yDesc, const void* y,
                                           const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                           const cudnnTensorDescriptor_t xDesc, const void* x,
                                           const void* beta, const cudnnTensorDescriptor_t dxDesc,
                                           void* dx) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const Lrn lrn(Described(normDesc, "normDesc"));
    Require(lrnMode == CUDNN_LRN_CROSS_CHANNEL_DIM1, Fault::kBadParam, "lrnMode", "is no mode");
    const TensorView y_view = FloatTensor(yDesc, "yDesc"), dy_view = FloatTensor(dyDesc, "dyDesc");
    const TensorView x_view = FloatTensor(xDesc, "xDesc"), dx_view = FloatResult(dxDesc, "dxDesc");
    Require(x_view.SameDims(y_view) && x_view.SameDims(dy_view) && x_view.SameDims(dx_view),
            Fault::kNotSupported, "tensors", "differ in dimensions");
    CheckLayout(x_view, "xDesc");
    CheckLayout(y_view, "yDesc");
    CheckLayout(dy_view, "dyDesc");
    CheckLayout(dx_view, "dxDesc");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnLRNCrossChannelBackward");
    const float* y_data = operation.In(y, y_view, "y");
    const float* dy_data = operation.In(dy, dy_view, "dy");
    const float* x_data = operation.In(x, x_view, "x");
    float* dx_data = operation.Out(dx, dx_view, "dx");
    operation.Launch([=] {
      const TensorView places = OneChannel(x_view);
      const int64_t channels = x_view.dims[1];
      const auto gradient = [&](const int64_t* at) {
        const float* const xs = x_data + at[0];
        const auto scales = lrn.Scales(xs, channels, x_view.strides[1]);
        for (int64_t j = 0; j < channels; ++j) {
          double sum = 0;
          for (int64_t i = std::max<int64_t>(j - lrn.ahead, 0);
               i <= std::min(j + lrn.behind, channels - 1); ++i) {
            sum += static_cast<double>(dy_data[at[2] + i * dy_view.strides[1]]) *
                   y_data[at[1] + i * y_view.strides[1]] / scales[static_cast<size_t>(i)];
          }
          const double direct = dy_data[at[2] + j * dy_view.strides[1]] *
                                std::pow(scales[static_cast<size_t>(j)], -lrn.beta);
          const double share = 2 * lrn.alpha * lrn.beta / static_cast<double>(lrn.n);
          blend(direct - share * xs[j * x_view.strides[1]] * sum,
                &dx_data[at[3] + j * dx_view.strides[1]]);
        }
      };
      ForEachIndex<4>(places.rank, places.dims,
                      {x_view.strides, y_view.strides, dy_view.strides, dx_view.strides}, gradient);
    });
  });
}

}  // extern "C"
