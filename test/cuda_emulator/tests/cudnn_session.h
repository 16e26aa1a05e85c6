#pragma once

/// What the tests of the emulated cuDNN share: a handle on a stream, and tensors with an owner.

#include <cudnn.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <type_traits>
#include <vector>

#include "session.h"

namespace cuda_emulator_test {

using Catch::Matchers::WithinAbs;

inline void Succeeds(cudnnStatus_t status) {
  CHECK(std::string(cudnnGetErrorString(status)) == "CUDNN_STATUS_SUCCESS");
}

/// That a call was refused: with this status, and this text in its one report.
inline void Refuses(cudnnStatus_t status, cudnnStatus_t expected, const std::string& text) {
  INFO(text);
  CHECK(std::string(cudnnGetErrorString(status)) == cudnnGetErrorString(expected));
  Refused(text);
}

inline constexpr float kOne = 1, kZero = 0;

/// Reproducible numbers in [-1, 1].
inline std::vector<float> Numbers(size_t count, uint32_t seed) {
  std::vector<float> numbers(count);
  for (float& number : numbers) {
    seed = seed * 1664525U + 1013904223U;
    number = static_cast<float>(seed >> 8) / 8388608.0F - 1.0F;
  }
  return numbers;
}

inline double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// A vector in device memory.
class Buffer {
 public:
  Buffer(const Stream& stream, const std::vector<float>& values)
      : stream_(stream), device_(values.size()) {
    Set(values);
  }
  ~Buffer() { stream_.Wait(); }  // memory in use may not be freed
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void Set(const std::vector<float>& values) const {
    const Pinned staging(values.size());
    std::copy(values.begin(), values.end(), staging.get());
    Upload(device_, staging, stream_);
    stream_.Wait();
  }
  std::vector<float> Values() const {
    const Pinned staging(device_.bytes() / sizeof(float));
    Download(staging, device_, stream_);
    stream_.Wait();
    return {staging.get(), staging.get() + device_.bytes() / sizeof(float)};
  }
  float* get() const { return device_.get(); }

 private:
  const Stream& stream_;
  Device device_;
};

class Cudnn {
 public:
  Cudnn() {
    Succeeds(cudnnCreate(&handle_));
    Succeeds(cudnnSetStream(handle_, stream));
  }
  ~Cudnn() { Succeeds(cudnnDestroy(handle_)); }
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;
  operator cudnnHandle_t() const { return handle_; }

  const Stream stream;

 private:
  cudnnHandle_t handle_ = nullptr;
};

/// A descriptor of any kind, made and destroyed by the two functions.
template <class T, cudnnStatus_t (*kCreate)(T*), cudnnStatus_t (*kDestroy)(T)>
class Descriptor {
 public:
  Descriptor() { Succeeds(kCreate(&descriptor_)); }
  ~Descriptor() { Succeeds(kDestroy(descriptor_)); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator T() const { return descriptor_; }

 private:
  T descriptor_ = nullptr;
};

using TensorDescriptor =
    Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using FilterDescriptor =
    Descriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    Descriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
               cudnnDestroyConvolutionDescriptor>;
using PoolingDescriptor = Descriptor<cudnnPoolingDescriptor_t, cudnnCreatePoolingDescriptor,
                                     cudnnDestroyPoolingDescriptor>;
using ActivationDescriptor =
    Descriptor<cudnnActivationDescriptor_t, cudnnCreateActivationDescriptor,
               cudnnDestroyActivationDescriptor>;
using LrnDescriptor =
    Descriptor<cudnnLRNDescriptor_t, cudnnCreateLRNDescriptor, cudnnDestroyLRNDescriptor>;
using OpTensorDescriptor = Descriptor<cudnnOpTensorDescriptor_t, cudnnCreateOpTensorDescriptor,
                                      cudnnDestroyOpTensorDescriptor>;
using ReduceTensorDescriptor =
    Descriptor<cudnnReduceTensorDescriptor_t, cudnnCreateReduceTensorDescriptor,
               cudnnDestroyReduceTensorDescriptor>;

using Dims = std::vector<int>;

inline size_t CountOf(const Dims& dims) {
  return static_cast<size_t>(std::accumulate(dims.begin(), dims.end(), 1, std::multiplies<>()));
}

/// A dense NCHW tensor with its descriptor and memory.
class Tensor {
 public:
  Tensor(const Cudnn& cudnn, const Dims& dims, const std::vector<float>& values)
      : buffer_(cudnn.stream, values) {
    REQUIRE(values.size() == CountOf(dims));
    Succeeds(cudnnSetTensor4dDescriptor(descriptor_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, dims[0],
                                        dims[1], dims[2], dims[3]));
  }
  // A template, so that {5} is a vector and not a seed.
  template <class Seed, std::enable_if_t<std::is_integral_v<Seed>, int> = 0>
  Tensor(const Cudnn& cudnn, const Dims& dims, Seed seed)
      : Tensor(cudnn, dims, Numbers(CountOf(dims), static_cast<uint32_t>(seed))) {}

  cudnnTensorDescriptor_t desc() const { return descriptor_; }
  float* get() const { return buffer_.get(); }
  void Set(const std::vector<float>& values) const { buffer_.Set(values); }
  std::vector<float> Values() const { return buffer_.Values(); }

 private:
  TensorDescriptor descriptor_;
  Buffer buffer_;
};

/// The gradient of Σ dy · f(x) by central differences; f fills y from x.
template <class F>
std::vector<double> Differences(const Tensor& x, const Tensor& y, const std::vector<float>& dy,
                                F&& f) {
  constexpr float kStep = 1.0F / 64;
  const std::vector<float> at = x.Values();
  std::vector<double> gradient(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    std::vector<float> moved = at;
    moved[i] = at[i] + kStep;
    x.Set(moved);
    f();
    const double above = Dot(y.Values(), dy);
    moved[i] = at[i] - kStep;
    x.Set(moved);
    f();
    gradient[i] = (above - Dot(y.Values(), dy)) / (2 * kStep);
  }
  x.Set(at);
  f();
  return gradient;
}

inline void Near(const std::vector<float>& values, const std::vector<double>& expected,
                 double bound) {
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    INFO("element " << i);
    CHECK_THAT(static_cast<double>(values[i]), WithinAbs(expected[i], bound));
  }
}

}  // namespace cuda_emulator_test
