#include <cmath>

#include "cudnn_session.h"

namespace cuda_emulator_test {
namespace {

constexpr double kEpsilon = 1e-3;

// Batch norm of x [3, 2, 2, 2] with everything that the calls need.
struct Norm {
  explicit Norm(const Cudnn& c, cudnnBatchNormMode_t m)
      : cudnn(c),
        mode(m),
        x(c, {3, 2, 2, 2}, 1),
        y(c, {3, 2, 2, 2}, std::vector<float>(24, NAN)),
        dy(c, {3, 2, 2, 2}, 2),
        dx(c, {3, 2, 2, 2}, std::vector<float>(24, NAN)),
        count(m == CUDNN_BATCHNORM_PER_ACTIVATION ? 8 : 2),
        scale(c.stream, Numbers(count, 3)),
        bias(c.stream, Numbers(count, 4)),
        running_mean(c.stream, std::vector<float>(count, 1)),
        running_variance(c.stream, std::vector<float>(count, 2)),
        saved_mean(c.stream, std::vector<float>(count, NAN)),
        saved_inverse(c.stream, std::vector<float>(count, NAN)),
        dscale(c.stream, std::vector<float>(count, NAN)),
        dbias(c.stream, std::vector<float>(count, NAN)) {
    Succeeds(cudnnDeriveBNTensorDescriptor(derived, x.desc(), mode));
  }

  cudnnStatus_t Train(double factor = 0.1, double epsilon = kEpsilon) const {
    return cudnnBatchNormalizationForwardTraining(
        cudnn, mode, &kOne, &kZero, x.desc(), x.get(), y.desc(), y.get(), derived, scale.get(),
        bias.get(), factor, running_mean.get(), running_variance.get(), epsilon, saved_mean.get(),
        saved_inverse.get());
  }
  cudnnStatus_t Backward(bool saved, float parameter_beta = 0) const {
    return cudnnBatchNormalizationBackward(
        cudnn, mode, &kOne, &kZero, &kOne, &parameter_beta, x.desc(), x.get(), dy.desc(), dy.get(),
        dx.desc(), dx.get(), derived, scale.get(), dscale.get(), dbias.get(), kEpsilon,
        saved ? saved_mean.get() : nullptr, saved ? saved_inverse.get() : nullptr);
  }
  // The values of x that share scale g.
  std::vector<double> Group(size_t g) const {
    std::vector<double> group;
    const std::vector<float> values = x.Values();
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t own = mode == CUDNN_BATCHNORM_PER_ACTIVATION ? i % 8 : i / 4 % 2;
      if (own == g) group.push_back(values[i]);
    }
    return group;
  }

  const Cudnn& cudnn;
  cudnnBatchNormMode_t mode;
  Tensor x, y, dy, dx;
  size_t count;
  Buffer scale, bias, running_mean, running_variance, saved_mean, saved_inverse, dscale, dbias;
  TensorDescriptor derived;
};

constexpr cudnnBatchNormMode_t kModes[] = {CUDNN_BATCHNORM_PER_ACTIVATION, CUDNN_BATCHNORM_SPATIAL,
                                           CUDNN_BATCHNORM_SPATIAL_PERSISTENT};

TEST_CASE("training saves mean and inverse deviation, and averages mean and sample variance") {
  const Session session;
  const Cudnn cudnn;
  for (const cudnnBatchNormMode_t mode : kModes) {
    const Norm norm(cudnn, mode);
    Succeeds(norm.Train());
    for (size_t g = 0; g < norm.count; ++g) {
      const std::vector<double> values = norm.Group(g);
      const auto m = static_cast<double>(values.size());
      double mean = 0, variance = 0;
      for (const double v : values) mean += v / m;
      for (const double v : values) variance += (v - mean) * (v - mean) / m;
      CHECK_THAT(norm.saved_mean.Values()[g], WithinAbs(mean, 1e-6));
      CHECK_THAT(norm.saved_inverse.Values()[g],
                 WithinAbs(1 / std::sqrt(variance + kEpsilon), 1e-4));
      CHECK_THAT(norm.running_mean.Values()[g], WithinAbs(0.9 + 0.1 * mean, 1e-6));
      CHECK_THAT(norm.running_variance.Values()[g],
                 WithinAbs(1.8 + 0.1 * variance * m / (m - 1), 1e-6));
    }
    const std::vector<float> y = norm.y.Values();
    const double first = norm.scale.Values()[0] * norm.saved_inverse.Values()[0] *
                             (norm.x.Values()[0] - norm.saved_mean.Values()[0]) +
                         norm.bias.Values()[0];
    CHECK_THAT(y[0], WithinAbs(first, 1e-5));
  }
}

TEST_CASE("inference uses the given mean and variance") {
  const Session session;
  const Cudnn cudnn;
  const Norm norm(cudnn, CUDNN_BATCHNORM_SPATIAL);
  Succeeds(cudnnBatchNormalizationForwardInference(
      cudnn, norm.mode, &kOne, &kZero, norm.x.desc(), norm.x.get(), norm.y.desc(), norm.y.get(),
      norm.derived, norm.scale.get(), norm.bias.get(), norm.running_mean.get(),
      norm.running_variance.get(), kEpsilon));
  const double expected =
      norm.scale.Values()[1] * (norm.x.Values()[4] - 1) / std::sqrt(2 + kEpsilon) +
      norm.bias.Values()[1];
  CHECK_THAT(norm.y.Values()[4], WithinAbs(expected, 1e-6));
}

TEST_CASE("the gradients of batch norm are its derivatives, with saved statistics or without") {
  const Session session;
  const Cudnn cudnn;
  for (const cudnnBatchNormMode_t mode : kModes) {
    const Norm norm(cudnn, mode);
    const auto train = [&] { Succeeds(norm.Train()); };
    const std::vector<double> expected = Differences(norm.x, norm.y, norm.dy.Values(), train);
    for (const bool saved : {true, false}) {
      Succeeds(norm.Backward(saved));
      Near(norm.dx.Values(), expected, 5e-3);
      // The output is linear in scale and bias.
      const std::vector<float> y = norm.y.Values(), dy = norm.dy.Values();
      CHECK_THAT(Dot(norm.dscale.Values(), norm.scale.Values()) +
                     Dot(norm.dbias.Values(), norm.bias.Values()),
                 WithinAbs(Dot(y, dy), 1e-4));
    }
    const std::vector<float> once = norm.dbias.Values();
    Succeeds(norm.Backward(true, 1));
    CHECK(norm.dbias.Values()[0] == 2 * once[0]);
  }
}

TEST_CASE("batch norm that the documentation does not allow is refused") {
  const Session session;
  const Cudnn cudnn;
  const Norm norm(cudnn, CUDNN_BATCHNORM_SPATIAL);
  Refuses(norm.Train(0.1, -1e-3), CUDNN_STATUS_BAD_PARAM, "epsilon");
  Refuses(norm.Train(1.5), CUDNN_STATUS_BAD_PARAM, "exponentialAverageFactor");
  const auto train = [&](cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t scale, void* saved,
                         float* y) {
    return cudnnBatchNormalizationForwardTraining(
        cudnn, norm.mode, &kOne, &kZero, x, norm.x.get(), x, y, scale, norm.scale.get(),
        norm.bias.get(), 0.1, norm.running_mean.get(), norm.running_variance.get(), kEpsilon, saved,
        norm.saved_inverse.get());
  };
  Refuses(train(norm.x.desc(), norm.derived, nullptr, norm.y.get()), CUDNN_STATUS_BAD_PARAM,
          "both be null or neither");
  Refuses(train(norm.x.desc(), norm.x.desc(), norm.saved_mean.get(), norm.y.get()),
          CUDNN_STATUS_BAD_PARAM, "has not the dimensions");
  Refuses(train(norm.x.desc(), norm.derived, norm.saved_mean.get(), norm.x.get()),
          CUDNN_STATUS_BAD_PARAM, "y overlaps x");
  const TensorDescriptor one;
  Succeeds(cudnnSetTensor4dDescriptor(one, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 1, 1));
  Refuses(train(one, norm.derived, norm.saved_mean.get(), norm.y.get()), CUDNN_STATUS_NOT_SUPPORTED,
          "of one value a channel");
}

}  // namespace
}  // namespace cuda_emulator_test
