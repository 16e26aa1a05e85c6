// cuDNN's batch normalisation.
//
// Over the m values that share a scale (spatial modes: N, H, W of a channel; per activation: N):
// mean, and the variance with divisor m. savedInvVariance is 1 / sqrt(variance + epsilon); the
// running variance takes the sample variance, with divisor m - 1.

#include <cmath>

#include "cudnn_common.h"

namespace cuda_emulator::library {
namespace {

void CheckMode(cudnnBatchNormMode_t mode) {
  Require(mode >= CUDNN_BATCHNORM_PER_ACTIVATION && mode <= CUDNN_BATCHNORM_SPATIAL_PERSISTENT,
          Fault::kBadParam, "mode", "is no cudnnBatchNormMode_t");
}

// The axes of x in two groups: those that the scale has too, and those normalised over.
struct BatchNorm {
  TensorView x;       // as described
  TensorView scale;   // packed, 1 on the normalised axes
  TensorView groups;  // scale's dimensions, x's strides
  TensorView inside;  // 1 where scale has more, x's dimensions elsewhere
  double count = 1;   // values a group

  BatchNorm(cudnnBatchNormMode_t mode, const TensorView& x_view,
            const cudnnTensorStruct* scale_descriptor, const char* scale_name)
      : x(x_view),
        scale(FloatResult(scale_descriptor, scale_name)),
        groups(x_view),
        inside(x_view) {
    CheckMode(mode);
    Require(scale.rank == x.rank && scale.PackedFrom(0), Fault::kBadParam, scale_name,
            "has another number of dimensions or is not packed");
    for (int i = 0; i < x.rank; ++i) {
      const bool own = i == 1 || (i > 1 && mode == CUDNN_BATCHNORM_PER_ACTIVATION);
      (own ? inside : groups).dims[i] = 1;
      Require(scale.dims[i] == groups.dims[i], Fault::kBadParam, scale_name,
              "has not the dimensions that cudnnDeriveBNTensorDescriptor gives");
    }
    count = static_cast<double>(inside.Count());
  }

  // f(offset of the group's first value in x, offset in scale, and, with `other`'s strides, there)
  template <class F>
  void ForEachGroup(const TensorView& other, F&& f) const {
    ForEachIndex<3>(x.rank, groups.dims, {groups.strides, scale.strides, other.strides},
                    [&](const int64_t* at) { f(at[0], at[1], at[2]); });
  }
  template <class F>
  void ForEachInside(const TensorView& other, F&& f) const {
    ForEachIndex<2>(x.rank, inside.dims, {x.strides, other.strides},
                    [&](const int64_t* at) { f(at[0], at[1]); });
  }

  void Statistics(const float* values, double* mean, double* variance) const {
    double sum = 0, squares = 0;
    ForEachInside(x, [&](int64_t at, int64_t) { sum += values[at]; });
    *mean = sum / count;
    ForEachInside(x, [&](int64_t at, int64_t) {
      const double difference = values[at] - *mean;
      squares += difference * difference;
    });
    *variance = squares / count;
  }
};

void CheckEpsilon(double epsilon) {
  Require(epsilon >= CUDNN_BN_MIN_EPSILON, Fault::kBadParam, "epsilon",
          "is less than CUDNN_BN_MIN_EPSILON");
}

void CheckBoth(const void* a, const void* b, const char* names) {
  Require((a == nullptr) == (b == nullptr), Fault::kBadParam, names,
          "must both be null or neither");
}

// A null pointer gives null: the value is not wanted or not given.
float* OptionalOut(Operation& operation, void* device, const TensorView& view, const char* name) {
  return device == nullptr ? nullptr : operation.Out(device, view, name);
}

void Average(float* running, double value, double factor) {
  *running = static_cast<float>(*running * (1 - factor) + value * factor);
}

struct TrainingData {
  const float *x, *scale, *bias;
  float *y, *running_mean, *running_variance, *saved_mean, *saved_inverse;
};

void RunTraining(const BatchNorm& norm, const TensorView& y_view, Blend blend, double factor,
                 double epsilon, const TrainingData& data) {
  norm.ForEachGroup(y_view, [&](int64_t first, int64_t at, int64_t y_first) {
    double mean = 0, variance = 0;
    norm.Statistics(data.x + first, &mean, &variance);
    const double inverse = 1 / std::sqrt(variance + epsilon);
    norm.ForEachInside(y_view, [&](int64_t in, int64_t out) {
      const double normalised = (data.x[first + in] - mean) * inverse;
      blend(data.scale[at] * normalised + data.bias[at], &data.y[y_first + out]);
    });
    if (data.running_mean != nullptr) {
      Average(&data.running_mean[at], mean, factor);
      Average(&data.running_variance[at], variance * norm.count / (norm.count - 1), factor);
    }
    if (data.saved_mean != nullptr) {
      data.saved_mean[at] = static_cast<float>(mean);
      data.saved_inverse[at] = static_cast<float>(inverse);
    }
  });
}

struct GradientData {
  const float *x, *dy, *scale, *saved_mean, *saved_inverse;
  float *dx, *dscale, *dbias;
};

void RunBackward(const BatchNorm& norm, const TensorView& dy_view, const TensorView& dx_view,
                 Blend blend, Blend parameter_blend, double epsilon, const GradientData& data) {
  ForEachIndex<4>(norm.x.rank, norm.groups.dims,
                  {norm.x.strides, norm.scale.strides, dy_view.strides, dx_view.strides},
                  [&](const int64_t* at) {
                    double mean = 0, inverse = 0;
                    if (data.saved_mean != nullptr) {
                      mean = data.saved_mean[at[1]];
                      inverse = data.saved_inverse[at[1]];
                    } else {
                      double variance = 0;
                      norm.Statistics(data.x + at[0], &mean, &variance);
                      inverse = 1 / std::sqrt(variance + epsilon);
                    }
                    double dbias = 0, dscale = 0;
                    norm.ForEachInside(dy_view, [&](int64_t in, int64_t g) {
                      const double dy = data.dy[at[2] + g];
                      dbias += dy;
                      dscale += dy * (data.x[at[0] + in] - mean) * inverse;
                    });
                    const double factor = data.scale[at[1]] * inverse;
                    ForEachIndex<3>(
                        norm.x.rank, norm.inside.dims,
                        {norm.x.strides, dy_view.strides, dx_view.strides}, [&](const int64_t* in) {
                          const double normalised = (data.x[at[0] + in[0]] - mean) * inverse;
                          const double dy = data.dy[at[2] + in[1]];
                          blend(factor * (dy - (dbias + normalised * dscale) / norm.count),
                                &data.dx[at[3] + in[2]]);
                        });
                    parameter_blend(dscale, &data.dscale[at[1]]);
                    parameter_blend(dbias, &data.dbias[at[1]]);
                  });
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t derivedBnDesc,
                                            const cudnnTensorDescriptor_t xDesc,
                                            cudnnBatchNormMode_t mode) {
  return CudnnCall(__func__, [&] {
    CheckMode(mode);
    const cudnnTensorStruct& x = Described(xDesc, "xDesc");
    Require(x.view.rank == 4 || x.view.rank == 5, Fault::kBadParam, "xDesc",
            "is neither 4D nor 5D");
    std::vector<int64_t> dims(x.view.dims, x.view.dims + x.view.rank);
    dims[0] = 1;
    for (size_t i = 2; i < dims.size(); ++i) {
      if (mode != CUDNN_BATCHNORM_PER_ACTIVATION) dims[i] = 1;
    }
    const cudnnDataType_t type = x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    Writable(derivedBnDesc, "derivedBnDesc") = {true, type, Dense(dims)};
  });
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const cudnnTensorDescriptor_t xDesc, const void* x, const cudnnTensorDescriptor_t yDesc,
    void* y, const cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, const void* bnScale,
    const void* bnBias, double exponentialAverageFactor, void* resultRunningMean,
    void* resultRunningVariance, double epsilon, void* resultSaveMean,
    void* resultSaveInvVariance) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const TensorView x_view = FloatTensor(xDesc, "xDesc"), y_view = FloatResult(yDesc, "yDesc");
    Require(x_view.SameDims(y_view), Fault::kBadParam, "xDesc", "has other dimensions than yDesc");
    const BatchNorm norm(mode, x_view, bnScaleBiasMeanVarDesc, "bnScaleBiasMeanVarDesc");
    CheckEpsilon(epsilon);
    CheckBoth(resultRunningMean, resultRunningVariance, "resultRunningMean and -Variance");
    CheckBoth(resultSaveMean, resultSaveInvVariance, "resultSaveMean and -InvVariance");
    Require(exponentialAverageFactor >= 0 && exponentialAverageFactor <= 1, Fault::kBadParam,
            "exponentialAverageFactor", "is outside [0, 1]");
    // The sample variance of one value is not documented.
    Require(norm.count > 1 || resultRunningMean == nullptr, Fault::kNotSupported,
            "running statistics", "of one value a channel");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnBatchNormalizationForwardTraining");
    TrainingData data{};
    data.x = operation.In(x, x_view, "x");
    data.scale = operation.In(bnScale, norm.scale, "bnScale");
    data.bias = operation.In(bnBias, norm.scale, "bnBias");
    data.y = operation.Out(y, y_view, "y");
    data.running_mean = OptionalOut(operation, resultRunningMean, norm.scale, "resultRunningMean");
    data.running_variance =
        OptionalOut(operation, resultRunningVariance, norm.scale, "resultRunningVariance");
    data.saved_mean = OptionalOut(operation, resultSaveMean, norm.scale, "resultSaveMean");
    data.saved_inverse =
        OptionalOut(operation, resultSaveInvVariance, norm.scale, "resultSaveInvVariance");
    operation.Launch(
        [=] { RunTraining(norm, y_view, blend, exponentialAverageFactor, epsilon, data); });
  });
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const cudnnTensorDescriptor_t xDesc, const void* x, const cudnnTensorDescriptor_t yDesc,
    void* y, const cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, const void* bnScale,
    const void* bnBias, const void* estimatedMean, const void* estimatedVariance, double epsilon) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const TensorView x_view = FloatTensor(xDesc, "xDesc"), y_view = FloatResult(yDesc, "yDesc");
    Require(x_view.SameDims(y_view), Fault::kBadParam, "xDesc", "has other dimensions than yDesc");
    const BatchNorm norm(mode, x_view, bnScaleBiasMeanVarDesc, "bnScaleBiasMeanVarDesc");
    CheckEpsilon(epsilon);
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnBatchNormalizationForwardInference");
    const float* in = operation.In(x, x_view, "x");
    const float* scale = operation.In(bnScale, norm.scale, "bnScale");
    const float* bias = operation.In(bnBias, norm.scale, "bnBias");
    const float* means = operation.In(estimatedMean, norm.scale, "estimatedMean");
    const float* variances = operation.In(estimatedVariance, norm.scale, "estimatedVariance");
    float* out = operation.Out(y, y_view, "y");
    operation.Launch([=] {
      norm.ForEachGroup(y_view, [&](int64_t first, int64_t at, int64_t y_first) {
        const double inverse = 1 / std::sqrt(variances[at] + epsilon);
        norm.ForEachInside(y_view, [&](int64_t i, int64_t o) {
          const double normalised = (static_cast<double>(in[first + i]) - means[at]) * inverse;
          blend(scale[at] * normalised + bias[at], &out[y_first + o]);
        });
      });
    });
  });
}

cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alphaDataDiff,
    const void* betaDataDiff, const void* alphaParamDiff, const void* betaParamDiff,
    const cudnnTensorDescriptor_t xDesc, const void* x, const cudnnTensorDescriptor_t dyDesc,
    const void* dy, const cudnnTensorDescriptor_t dxDesc, void* dx,
    const cudnnTensorDescriptor_t dBnScaleBiasDesc, const void* bnScale, void* dBnScaleResult,
    void* dBnBiasResult, double epsilon, const void* savedMean, const void* savedInvVariance) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const TensorView x_view = FloatTensor(xDesc, "xDesc");
    const TensorView dy_view = FloatTensor(dyDesc, "dyDesc");
    const TensorView dx_view = FloatResult(dxDesc, "dxDesc");
    Require(x_view.SameDims(dy_view) && x_view.SameDims(dx_view), Fault::kBadParam, "tensors",
            "differ in dimensions");
    const BatchNorm norm(mode, x_view, dBnScaleBiasDesc, "dBnScaleBiasDesc");
    CheckEpsilon(epsilon);
    CheckBoth(savedMean, savedInvVariance, "savedMean and savedInvVariance");
    const Blend blend = HostBlend(alphaDataDiff, betaDataDiff);
    const Blend parameter_blend = HostBlend(alphaParamDiff, betaParamDiff);
    Operation operation(use.Stream(), "cudnnBatchNormalizationBackward");
    GradientData data{};
    data.x = operation.In(x, x_view, "x");
    data.dy = operation.In(dy, dy_view, "dy");
    data.scale = operation.In(bnScale, norm.scale, "bnScale");
    if (savedMean != nullptr) {
      data.saved_mean = operation.In(savedMean, norm.scale, "savedMean");
      data.saved_inverse = operation.In(savedInvVariance, norm.scale, "savedInvVariance");
    }
    data.dx = operation.Out(dx, dx_view, "dx");
    data.dscale = operation.Out(dBnScaleResult, norm.scale, "dBnScaleResult");
    data.dbias = operation.Out(dBnBiasResult, norm.scale, "dBnBiasResult");
    operation.Launch(
        [=] { RunBackward(norm, dy_view, dx_view, blend, parameter_blend, epsilon, data); });
  });
}

}  // extern "C"
