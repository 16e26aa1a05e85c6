// Pooling, activations, softmax and local response normalisation of the emulated cuDNN.

#include <cmath>
#include <cstdlib>

#include "cudnn_session.h"

namespace cuda_emulator_test {
namespace {

class Pool {
 public:
  Pool(const Cudnn& cudnn, cudnnPoolingMode_t mode, int window, int padding, int stride)
      : cudnn_(cudnn) {
    Succeeds(cudnnSetPooling2dDescriptor(descriptor, mode, CUDNN_PROPAGATE_NAN, window, window,
                                         padding, padding, stride, stride));
  }
  cudnnStatus_t Forward(const Tensor& x, const Tensor& y) const {
    return cudnnPoolingForward(cudnn_, descriptor, &kOne, x.desc(), x.get(), &kZero, y.desc(),
                               y.get());
  }
  cudnnStatus_t Backward(const Tensor& y, const Tensor& dy, const Tensor& x,
                         const Tensor& dx) const {
    return cudnnPoolingBackward(cudnn_, descriptor, &kOne, y.desc(), y.get(), dy.desc(), dy.get(),
                                x.desc(), x.get(), &kZero, dx.desc(), dx.get());
  }

  PoolingDescriptor descriptor;

 private:
  const Cudnn& cudnn_;
};

TEST_CASE("pooling takes the maximum, or the average over the window or its part inside") {
  const Session session;
  const Cudnn cudnn;
  const Tensor x(cudnn, {1, 1, 3, 3}, {-1, -2, -3, -4, -5, -6, -7, -8, -9}),
      y(cudnn, {1, 1, 2, 2}, 1);
  const auto run = [&](cudnnPoolingMode_t mode) {
    const Pool pool(cudnn, mode, 2, 1, 2);
    Succeeds(pool.Forward(x, y));
    return y.Values();
  };
  CHECK(run(CUDNN_POOLING_MAX) == std::vector<float>{-1, -2, -4, -5});
  CHECK(run(CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING) ==
        std::vector<float>{-0.25, -1.25, -2.75, -7});
  CHECK(run(CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING) == std::vector<float>{-1, -2.5, -5.5, -7});
}

TEST_CASE("pooling's output rounds down; one more is taken unless it counts padding") {
  const Session session;
  const Cudnn cudnn;
  const Tensor x(cudnn, {1, 1, 4, 4}, 1), down(cudnn, {1, 1, 1, 1}, 1), up(cudnn, {1, 1, 2, 2}, 1);
  const Pool max(cudnn, CUDNN_POOLING_MAX, 3, 0, 2);
  const Pool counted(cudnn, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, 3, 0, 2);
  int n = 0, c = 0, h = 0, w = 0;
  Succeeds(cudnnGetPooling2dForwardOutputDim(max.descriptor, x.desc(), &n, &c, &h, &w));
  CHECK(Dims{n, c, h, w} == Dims{1, 1, 1, 1});
  Succeeds(max.Forward(x, down));
  Succeeds(max.Forward(x, up));
  CHECK(up.Values()[3] == x.Values()[15]);
  Refuses(counted.Forward(x, up), CUDNN_STATUS_BAD_PARAM, "has not the output's dimensions");
}

TEST_CASE("the gradient of pooling is adjoint to it, and keeps the sum where windows tile") {
  const Session session;
  const Cudnn cudnn;
  for (const cudnnPoolingMode_t mode :
       {CUDNN_POOLING_MAX, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
        CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, CUDNN_POOLING_MAX_DETERMINISTIC}) {
    const Pool pool(cudnn, mode, 3, 1, 2), tiles(cudnn, mode, 2, 0, 2);
    const Tensor x(cudnn, {2, 3, 6, 6}, 1), dx(cudnn, {2, 3, 6, 6}, 2);
    const Tensor y(cudnn, {2, 3, 3, 3}, 3), dy(cudnn, {2, 3, 3, 3}, 4);
    Succeeds(pool.Forward(x, y));
    Succeeds(pool.Backward(y, dy, x, dx));
    // Pooling is homogeneous: its gradient times x is dy times y.
    CHECK_THAT(Dot(dx.Values(), x.Values()), WithinAbs(Dot(dy.Values(), y.Values()), 1e-5));
    Succeeds(tiles.Forward(x, y));
    Succeeds(tiles.Backward(y, dy, x, dx));
    const auto sum = [](const Tensor& t) {
      return Dot(t.Values(), std::vector<float>(t.Values().size(), 1));
    };
    CHECK_THAT(sum(dx), WithinAbs(sum(dy), 1e-5));
  }
}

TEST_CASE("which of equal maxima takes the gradient varies in the non-deterministic mode only") {
  const Session session;
  const Cudnn cudnn;
  const Tensor x(cudnn, {1, 1, 2, 2}, {5, 5, 5, 5}), dx(cudnn, {1, 1, 2, 2}, 2);
  const Tensor y(cudnn, {1, 1, 1, 1}, {5}), dy(cudnn, {1, 1, 1, 1}, {1});
  const auto differs = [&](cudnnPoolingMode_t mode) {
    const Pool pool(cudnn, mode, 2, 0, 2);
    Succeeds(pool.Backward(y, dy, x, dx));
    const std::vector<float> first = dx.Values();
    bool other = false;
    for (int i = 0; i < 20; ++i) {
      Succeeds(pool.Backward(y, dy, x, dx));
      other = other || dx.Values() != first;
    }
    return other;
  };
  CHECK(differs(CUDNN_POOLING_MAX));
  CHECK_FALSE(differs(CUDNN_POOLING_MAX_DETERMINISTIC));
  const Pool pool(cudnn, CUDNN_POOLING_MAX_DETERMINISTIC, 2, 0, 2);
  setenv("CUDA_EMULATOR_POOLING_TIES", "last", 1);
  Succeeds(pool.Backward(y, dy, x, dx));
  CHECK(dx.Values() == std::vector<float>{0, 0, 0, 1});
  unsetenv("CUDA_EMULATOR_POOLING_TIES");
}

TEST_CASE("a pooling gradient whose y is not x's maximum is NaN") {
  const Session session;
  const Cudnn cudnn;
  const Tensor x(cudnn, {1, 1, 2, 2}, {1, 2, 3, 4}), dx(cudnn, {1, 1, 2, 2}, 2);
  const Tensor y(cudnn, {1, 1, 1, 1}, {5}), dy(cudnn, {1, 1, 1, 1}, {1});
  const Pool pool(cudnn, CUDNN_POOLING_MAX, 2, 0, 2);
  Succeeds(pool.Backward(y, dy, x, dx));
  CHECK(std::isnan(dx.Values()[0]));
}

TEST_CASE("pooling that the documentation does not allow is refused") {
  const Session session;
  const Cudnn cudnn;
  const PoolingDescriptor pool;
  const auto set = [&](int window, int padding, int stride) {
    return cudnnSetPooling2dDescriptor(pool, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, window, window,
                                       padding, padding, stride, stride);
  };
  Refuses(set(0, 0, 1), CUDNN_STATUS_BAD_PARAM, "window");
  Refuses(set(2, 0, 0), CUDNN_STATUS_BAD_PARAM, "stride");
  Refuses(set(2, -1, 1), CUDNN_STATUS_BAD_PARAM, "padding is negative");
  Refuses(set(2, 2, 1), CUDNN_STATUS_NOT_SUPPORTED, "not less than the window");
  Refuses(cudnnSetPooling2dDescriptor(pool, static_cast<cudnnPoolingMode_t>(7), CUDNN_PROPAGATE_NAN,
                                      2, 2, 0, 0, 2, 2),
          CUDNN_STATUS_BAD_PARAM, "mode");
  Succeeds(set(2, 0, 2));
  const Tensor x(cudnn, {1, 2, 4, 4}, 1), y(cudnn, {1, 2, 2, 2}, 1), wrong(cudnn, {1, 1, 2, 2}, 1);
  const auto forward = [&](cudnnTensorDescriptor_t x_desc, cudnnTensorDescriptor_t y_desc) {
    return cudnnPoolingForward(cudnn, pool, &kOne, x_desc, x.get(), &kZero, y_desc, y.get());
  };
  Refuses(forward(x.desc(), wrong.desc()), CUDNN_STATUS_BAD_PARAM, "output's dimensions");
  const TensorDescriptor nhwc;
  Succeeds(cudnnSetTensor4dDescriptor(nhwc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 2, 4, 4));
  Refuses(forward(nhwc, y.desc()), CUDNN_STATUS_NOT_SUPPORTED, "wStride");
  Succeeds(forward(x.desc(), y.desc()));
}

double Function(cudnnActivationMode_t mode, double x) {
  switch (mode) {
    case CUDNN_ACTIVATION_SIGMOID:
      return 1 / (1 + std::exp(-x));
    case CUDNN_ACTIVATION_TANH:
      return std::tanh(x);
    case CUDNN_ACTIVATION_CLIPPED_RELU:
      return x < 0 ? 0 : x > 0.5 ? 0.5 : x;
    case CUDNN_ACTIVATION_ELU:
      return x > 0 ? x : 0.5 * (std::exp(x) - 1);
    case CUDNN_ACTIVATION_SWISH:
      return x / (1 + std::exp(-x));
    default:
      return x < 0 ? 0 : x;
  }
}

TEST_CASE("activations are their functions, their gradients the derivatives, both in place too") {
  const Session session;
  const Cudnn cudnn;
  const std::vector<float> values = {-2, -0.7F, -0.1F, 0.2F, 0.3F, 0.8F, 1.5F, 3};
  for (const cudnnActivationMode_t mode :
       {CUDNN_ACTIVATION_SIGMOID, CUDNN_ACTIVATION_RELU, CUDNN_ACTIVATION_TANH,
        CUDNN_ACTIVATION_CLIPPED_RELU, CUDNN_ACTIVATION_ELU, CUDNN_ACTIVATION_SWISH}) {
    const ActivationDescriptor op;
    Succeeds(cudnnSetActivationDescriptor(op, mode, CUDNN_PROPAGATE_NAN, 0.5));
    const Tensor x(cudnn, {1, 2, 2, 2}, values), y(cudnn, {1, 2, 2, 2}, 1);
    const Tensor dy(cudnn, {1, 2, 2, 2}, 4), dx(cudnn, {1, 2, 2, 2}, 1);
    Succeeds(
        cudnnActivationForward(cudnn, op, &kOne, x.desc(), x.get(), &kZero, y.desc(), y.get()));
    std::vector<double> expected, gradient;
    for (size_t i = 0; i < values.size(); ++i) {
      expected.push_back(Function(mode, values[i]));
      gradient.push_back(dy.Values()[i] *
                         (Function(mode, values[i] + 1e-6) - Function(mode, values[i] - 1e-6)) /
                         2e-6);
    }
    Near(y.Values(), expected, 1e-6);
    const auto backward = [&](const Tensor& result) {
      return cudnnActivationBackward(cudnn, op, &kOne, y.desc(), y.get(), dy.desc(), dy.get(),
                                     x.desc(), x.get(), &kZero, result.desc(), result.get());
    };
    Succeeds(backward(dx));
    Near(dx.Values(), gradient, 1e-5);
    Succeeds(backward(dy));
    CHECK(dy.Values() == dx.Values());
    Succeeds(
        cudnnActivationForward(cudnn, op, &kOne, x.desc(), x.get(), &kZero, x.desc(), x.get()));
    CHECK(x.Values() == y.Values());
  }
}

TEST_CASE("NaN passes a rectifier only when it may") {
  const Session session;
  const Cudnn cudnn;
  const Tensor x(cudnn, {1, 1, 1, 1}, {NAN}), y(cudnn, {1, 1, 1, 1}, 1);
  const ActivationDescriptor op;
  const auto run = [&](cudnnNanPropagation_t nan) {
    Succeeds(cudnnSetActivationDescriptor(op, CUDNN_ACTIVATION_RELU, nan, 0));
    Succeeds(
        cudnnActivationForward(cudnn, op, &kOne, x.desc(), x.get(), &kZero, y.desc(), y.get()));
    return y.Values()[0];
  };
  CHECK(std::isnan(run(CUDNN_PROPAGATE_NAN)));
  CHECK(run(CUDNN_NOT_PROPAGATE_NAN) == 0);
}

TEST_CASE("activations that the documentation does not allow are refused") {
  const Session session;
  const Cudnn cudnn;
  const ActivationDescriptor op;
  const Tensor x(cudnn, {1, 2, 1, 2}, 1), y(cudnn, {1, 2, 1, 1}, 1), z(cudnn, {1, 2, 1, 2}, 1);
  Refuses(cudnnSetActivationDescriptor(op, static_cast<cudnnActivationMode_t>(40),
                                       CUDNN_PROPAGATE_NAN, 0),
          CUDNN_STATUS_BAD_PARAM, "mode");
  const auto forward = [&](const Tensor& to, cudnnTensorDescriptor_t desc) {
    return cudnnActivationForward(cudnn, op, &kOne, x.desc(), x.get(), &kZero, desc, to.get());
  };
  Refuses(forward(z, z.desc()), CUDNN_STATUS_BAD_PARAM, "never set");
  Succeeds(cudnnSetActivationDescriptor(op, CUDNN_ACTIVATION_IDENTITY, CUDNN_PROPAGATE_NAN, 0));
  Refuses(forward(z, z.desc()), CUDNN_STATUS_BAD_PARAM, "IDENTITY");
  Succeeds(cudnnSetActivationDescriptor(op, CUDNN_ACTIVATION_TANH, CUDNN_PROPAGATE_NAN, 0));
  Refuses(forward(y, y.desc()), CUDNN_STATUS_BAD_PARAM, "other dimensions");
  const TensorDescriptor nhwc;
  Succeeds(cudnnSetTensor4dDescriptor(nhwc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 2, 1, 2));
  Refuses(forward(x, nhwc), CUDNN_STATUS_BAD_PARAM, "identical descriptors");
  Refuses(cudnnActivationBackward(cudnn, op, &kOne, z.desc(), z.get(), z.desc(), z.get(), nhwc,
                                  x.get(), &kZero, z.desc(), z.get()),
          CUDNN_STATUS_NOT_SUPPORTED, "other strides");
}

TEST_CASE("softmax normalises over channels or whole samples, with its logarithm and gradient") {
  const Session session;
  const Cudnn cudnn;
  const Tensor x(cudnn, {2, 3, 1, 2}, 1), y(cudnn, {2, 3, 1, 2}, 2), log(cudnn, {2, 3, 1, 2}, 2);
  const Tensor dy(cudnn, {2, 3, 1, 2}, 5), dx(cudnn, {2, 3, 1, 2}, 6);
  for (const auto mode : {CUDNN_SOFTMAX_MODE_INSTANCE, CUDNN_SOFTMAX_MODE_CHANNEL}) {
    for (const auto algo : {CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_LOG}) {
      const auto forward = [&](cudnnSoftmaxAlgorithm_t with, const Tensor& to) {
        Succeeds(cudnnSoftmaxForward(cudnn, with, mode, &kOne, x.desc(), x.get(), &kZero, to.desc(),
                                     to.get()));
      };
      forward(CUDNN_SOFTMAX_ACCURATE, y);
      const std::vector<float> p = y.Values();
      CHECK_THAT(Dot(p, std::vector<float>(12, 1)),
                 WithinAbs(mode == CUDNN_SOFTMAX_MODE_INSTANCE ? 2 : 4, 1e-6));
      if (mode == CUDNN_SOFTMAX_MODE_CHANNEL) CHECK_THAT(p[0] + p[2] + p[4], WithinAbs(1, 1e-6));
      forward(algo, log);
      for (size_t i = 0; i < p.size(); ++i) {
        const double value = log.Values()[i];
        CHECK_THAT(algo == CUDNN_SOFTMAX_LOG ? std::exp(value) : value, WithinAbs(p[i], 1e-6));
      }
      const std::vector<double> expected =
          Differences(x, log, dy.Values(), [&] { forward(algo, log); });
      Succeeds(cudnnSoftmaxBackward(cudnn, algo, mode, &kOne, log.desc(), log.get(), dy.desc(),
                                    dy.get(), &kZero, dx.desc(), dx.get()));
      Near(dx.Values(), expected, 2e-4);
    }
  }
  x.Set(std::vector<float>(12, 200));
  Succeeds(cudnnSoftmaxForward(cudnn, CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_MODE_CHANNEL, &kOne,
                               x.desc(), x.get(), &kZero, y.desc(), y.get()));
  CHECK(std::isnan(y.Values()[0]));  // as exp overflows in f32
  Refuses(cudnnSoftmaxForward(cudnn, CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_MODE_CHANNEL, &kOne,
                              x.desc(), x.get(), &kZero, x.desc(), x.get()),
          CUDNN_STATUS_BAD_PARAM, "y overlaps x");
  Refuses(cudnnSoftmaxForward(cudnn, static_cast<cudnnSoftmaxAlgorithm_t>(5),
                              CUDNN_SOFTMAX_MODE_CHANNEL, &kOne, x.desc(), x.get(), &kZero,
                              y.desc(), y.get()),
          CUDNN_STATUS_BAD_PARAM, "algo");
}

TEST_CASE("LRN divides by its window's power, which reaches further ahead when even") {
  const Session session;
  const Cudnn cudnn;
  const Tensor x(cudnn, {1, 4, 1, 1}, {1, 2, 3, 4}), y(cudnn, {1, 4, 1, 1}, 1);
  const LrnDescriptor lrn;
  const auto run = [&](unsigned n) {
    Succeeds(cudnnSetLRNDescriptor(lrn, n, n, 1, 1));  // alpha / n = 1, beta = 1
    Succeeds(cudnnLRNCrossChannelForward(cudnn, lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, &kOne, x.desc(),
                                         x.get(), &kZero, y.desc(), y.get()));
    return y.Values();
  };
  Near(run(1), {1.0 / 2, 2.0 / 5, 3.0 / 10, 4.0 / 17}, 1e-6);
  Near(run(2), {1.0 / 6, 2.0 / 14, 3.0 / 26, 4.0 / 17}, 1e-6);  // the channel and the next
  Near(run(3), {1.0 / 6, 2.0 / 15, 3.0 / 30, 4.0 / 26}, 1e-6);
  Near(run(4), {1.0 / 15, 2.0 / 31, 3.0 / 30, 4.0 / 26}, 1e-6);  // one before, two after
}

TEST_CASE("the gradient of LRN is its derivative") {
  const Session session;
  const Cudnn cudnn;
  for (const unsigned n : {2U, 5U}) {
    const Tensor x(cudnn, {2, 6, 1, 2}, 1), y(cudnn, {2, 6, 1, 2}, 2);
    const Tensor dy(cudnn, {2, 6, 1, 2}, 3), dx(cudnn, {2, 6, 1, 2}, 4);
    const LrnDescriptor lrn;
    Succeeds(cudnnSetLRNDescriptor(lrn, n, 2, 0.75, 1));
    const std::vector<double> expected = Differences(x, y, dy.Values(), [&] {
      Succeeds(cudnnLRNCrossChannelForward(cudnn, lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, &kOne,
                                           x.desc(), x.get(), &kZero, y.desc(), y.get()));
    });
    Succeeds(cudnnLRNCrossChannelBackward(cudnn, lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, &kOne, y.desc(),
                                          y.get(), dy.desc(), dy.get(), x.desc(), x.get(), &kZero,
                                          dx.desc(), dx.get()));
    Near(dx.Values(), expected, 1e-3);
  }
}

TEST_CASE("LRN parameters outside cuDNN's limits are refused") {
  const Session session;
  const LrnDescriptor lrn;
  Refuses(cudnnSetLRNDescriptor(lrn, 0, 1e-4, 0.75, 1), CUDNN_STATUS_BAD_PARAM, "lrnN");
  Refuses(cudnnSetLRNDescriptor(lrn, 17, 1e-4, 0.75, 1), CUDNN_STATUS_BAD_PARAM, "lrnN");
  Refuses(cudnnSetLRNDescriptor(lrn, 5, 1e-4, 0.75, 1e-6), CUDNN_STATUS_BAD_PARAM, "lrnK");
  Refuses(cudnnSetLRNDescriptor(lrn, 5, 1e-4, 0.001, 1), CUDNN_STATUS_BAD_PARAM, "lrnBeta");
}

}  // namespace
}  // namespace cuda_emulator_test
