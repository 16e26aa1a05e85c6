#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>

#include "cudnn_session.h"

namespace cuda_emulator_test {
namespace {

struct Case {
  Dims x, w;
  int pad = 0, stride = 1, dilation = 1, groups = 1;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
};

// A convolution with its descriptors and tensors; y has the dimensions that cuDNN states.
class Conv {
 public:
  explicit Conv(const Cudnn& cudnn, const Case& c, cudnnMathType_t math = CUDNN_FMA_MATH)
      : cudnn_(cudnn), x(cudnn, c.x, 1), w(cudnn.stream, Numbers(CountOf(c.w), 2)) {
    Succeeds(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, c.w[0], c.w[1],
                                        c.w[2], c.w[3]));
    Succeeds(cudnnSetConvolution2dDescriptor(conv, c.pad, c.pad, c.stride, c.stride, c.dilation,
                                             c.dilation, c.mode, CUDNN_DATA_FLOAT));
    Succeeds(cudnnSetConvolutionGroupCount(conv, c.groups));
    Succeeds(cudnnSetConvolutionMathType(conv, math));
    Dims dims(4);
    Succeeds(cudnnGetConvolution2dForwardOutputDim(conv, x.desc(), filter, &dims[0], &dims[1],
                                                   &dims[2], &dims[3]));
    y.emplace(cudnn, dims, std::vector<float>(CountOf(dims), NAN));
  }

  cudnnStatus_t Forward(int algo, size_t bytes, const Device* workspace, float alpha = 1,
                        float beta = 0) const {
    return cudnnConvolutionForward(cudnn_, &alpha, x.desc(), x.get(), filter, w.get(), conv,
                                   static_cast<cudnnConvolutionFwdAlgo_t>(algo),
                                   workspace == nullptr ? nullptr : workspace->get(), bytes, &beta,
                                   y->desc(), y->get());
  }
  cudnnStatus_t BackwardData(int algo, size_t bytes, const Device* workspace) const {
    return cudnnConvolutionBackwardData(cudnn_, &kOne, filter, w.get(), y->desc(), y->get(), conv,
                                        static_cast<cudnnConvolutionBwdDataAlgo_t>(algo),
                                        workspace == nullptr ? nullptr : workspace->get(), bytes,
                                        &kZero, x.desc(), x.get());
  }
  cudnnStatus_t BackwardFilter(int algo, size_t bytes, const Device* workspace) const {
    return cudnnConvolutionBackwardFilter(cudnn_, &kOne, x.desc(), x.get(), y->desc(), y->get(),
                                          conv, static_cast<cudnnConvolutionBwdFilterAlgo_t>(algo),
                                          workspace == nullptr ? nullptr : workspace->get(), bytes,
                                          &kZero, filter, w.get());
  }

 private:
  const Cudnn& cudnn_;

 public:
  FilterDescriptor filter;
  ConvolutionDescriptor conv;
  Tensor x;
  Buffer w;
  std::optional<Tensor> y;
};

struct Entry {
  int algo;
  bool supported, deterministic;
  size_t workspace;
};

template <class Perf, class Get>
std::vector<Entry> ListOf(int asked, Get&& get) {
  std::vector<Perf> perfs(static_cast<size_t>(asked));
  int returned = 0;
  Succeeds(get(asked, &returned, perfs.data()));
  std::vector<Entry> entries;
  for (int i = 0; i < returned; ++i) {
    const Perf& perf = perfs[static_cast<size_t>(i)];
    entries.push_back({perf.algo, perf.status == CUDNN_STATUS_SUCCESS,
                       perf.determinism == CUDNN_DETERMINISTIC, perf.memory});
  }
  return entries;
}

std::vector<Entry> ForwardList(const Cudnn& cudnn, const Conv& c, int asked = 20) {
  return ListOf<cudnnConvolutionFwdAlgoPerf_t>(asked, [&](int n, int* returned, auto* perfs) {
    return cudnnGetConvolutionForwardAlgorithm_v7(cudnn, c.x.desc(), c.filter, c.conv, c.y->desc(),
                                                  n, returned, perfs);
  });
}
std::vector<Entry> BackwardDataList(const Cudnn& cudnn, const Conv& c) {
  return ListOf<cudnnConvolutionBwdDataAlgoPerf_t>(20, [&](int n, int* returned, auto* perfs) {
    return cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnn, c.filter, c.y->desc(), c.conv,
                                                       c.x.desc(), n, returned, perfs);
  });
}
std::vector<Entry> BackwardFilterList(const Cudnn& cudnn, const Conv& c) {
  return ListOf<cudnnConvolutionBwdFilterAlgoPerf_t>(20, [&](int n, int* returned, auto* perfs) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnn, c.x.desc(), c.y->desc(), c.conv,
                                                         c.filter, n, returned, perfs);
  });
}

// Runs one pass with exactly the entry's workspace.
template <class Run>
void RunWith(const Cudnn& cudnn, const Entry& entry, Run&& run) {
  const Device workspace(entry.workspace / 4 + 1);
  Succeeds(run(entry.algo, entry.workspace, entry.workspace == 0 ? nullptr : &workspace));
  cudnn.stream.Wait();
}

std::vector<Case> Cases() {
  return {{.x = {2, 3, 5, 6}, .w = {4, 3, 3, 3}, .pad = 1},
          {.x = {2, 4, 7, 5}, .w = {6, 2, 3, 2}, .stride = 2, .groups = 2},
          {.x = {1, 2, 8, 9}, .w = {3, 2, 2, 3}, .pad = 2, .stride = 3, .dilation = 2},
          {.x = {2, 3, 6, 6}, .w = {3, 1, 5, 5}, .pad = 2, .groups = 3},
          {.x = {3, 2, 4, 4}, .w = {2, 2, 3, 3}, .pad = 1, .mode = CUDNN_CONVOLUTION},
          {.x = {1, 1, 1, 1}, .w = {1, 1, 1, 1}}};
}

TEST_CASE("cross-correlation slides the filter as it is, convolution turned around") {
  const Session session;
  const Cudnn cudnn;
  const auto run = [&](cudnnConvolutionMode_t mode) {
    Conv c(cudnn, {.x = {1, 1, 3, 3}, .w = {1, 1, 2, 2}, .mode = mode});
    c.x.Set({1, 2, 3, 4, 5, 6, 7, 8, 9});
    c.w.Set({1, 2, 3, 4});
    Succeeds(c.Forward(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, 0, nullptr));
    return c.y->Values();
  };
  CHECK(run(CUDNN_CROSS_CORRELATION) == std::vector<float>{37, 47, 67, 77});
  CHECK(run(CUDNN_CONVOLUTION) == std::vector<float>{23, 33, 53, 63});
}

TEST_CASE("for every algorithm both gradients are adjoint to the forward pass") {
  const Session session;
  const Cudnn cudnn;
  for (const Case& shape : Cases()) {
    Conv c(cudnn, shape);
    const std::vector<float> x = c.x.Values(), w = c.w.Values();
    const std::vector<float> dy = Numbers(c.y->Values().size(), 3);
    RunWith(cudnn, {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true, true, 0},
            [&](auto... a) { return c.Forward(a...); });
    const double product = Dot(c.y->Values(), dy);
    for (const Entry& entry : ForwardList(cudnn, c)) {
      if (!entry.supported) continue;
      RunWith(cudnn, entry, [&](auto... a) { return c.Forward(a...); });
      CHECK_THAT(Dot(c.y->Values(), dy), WithinAbs(product, 1e-4));
    }
    c.y->Set(dy);
    for (const Entry& entry : BackwardDataList(cudnn, c)) {
      if (!entry.supported) continue;
      RunWith(cudnn, entry, [&](auto... a) { return c.BackwardData(a...); });
      CHECK_THAT(Dot(c.x.Values(), x), WithinAbs(product, 1e-4));
    }
    c.x.Set(x);
    for (const Entry& entry : BackwardFilterList(cudnn, c)) {
      if (!entry.supported) continue;
      RunWith(cudnn, entry, [&](auto... a) { return c.BackwardFilter(a...); });
      CHECK_THAT(Dot(c.w.Values(), w), WithinAbs(product, 1e-4));
    }
  }
}

TEST_CASE(
    "the result is alpha times the convolution plus beta times what was there; beta 0 reads "
    "nothing") {
  const Session session;
  const Cudnn cudnn;
  Conv c(cudnn, {.x = {1, 1, 1, 2}, .w = {1, 1, 1, 1}});
  c.x.Set({1, 2});
  c.w.Set({3});
  Succeeds(c.Forward(0, 0, nullptr, 2, 0));  // y was NaN
  CHECK(c.y->Values() == std::vector<float>{6, 12});
  Succeeds(c.Forward(0, 0, nullptr, 1, 10));
  CHECK(c.y->Values() == std::vector<float>{63, 126});
}

TEST_CASE(
    "lists of algorithms begin with unsupported, then non-deterministic ones, and stay short") {
  const Session session;
  const Cudnn cudnn;
  const Conv c(cudnn, Cases()[0]);
  int most = 0;
  Succeeds(cudnnGetConvolutionForwardAlgorithmMaxCount(cudnn, &most));
  CHECK(static_cast<int>(ForwardList(cudnn, c, most).size()) < most);
  CHECK(ForwardList(cudnn, c, 3).size() == 3);
  for (const auto& list :
       {ForwardList(cudnn, c), BackwardDataList(cudnn, c), BackwardFilterList(cudnn, c)}) {
    const auto rank = [](const Entry& e) { return e.supported ? (e.deterministic ? 2 : 1) : 0; };
    for (size_t i = 1; i < list.size(); ++i) CHECK(rank(list[i - 1]) <= rank(list[i]));
    CHECK(rank(list.back()) == 2);
  }
  CHECK_FALSE(ForwardList(cudnn, c)[0].supported);
  CHECK_FALSE(BackwardFilterList(cudnn, c)[0].supported);
  CHECK_FALSE(BackwardDataList(cudnn, c)[0].deterministic);
  CHECK_FALSE(BackwardDataList(cudnn, Conv(cudnn, Cases()[1]))[0].supported);
}

TEST_CASE(
    "the workspace of an algorithm is the list's, differs by math type, and less is refused") {
  const Session session;
  const Cudnn cudnn;
  const Conv c(cudnn, Cases()[0]), other(cudnn, Cases()[0], CUDNN_DEFAULT_MATH);
  for (const Entry& entry : ForwardList(cudnn, c)) {
    size_t bytes = 0, other_bytes = 0;
    const auto algo = static_cast<cudnnConvolutionFwdAlgo_t>(entry.algo);
    const auto get = [&](const Conv& conv, size_t* size) {
      return cudnnGetConvolutionForwardWorkspaceSize(cudnn, conv.x.desc(), conv.filter, conv.conv,
                                                     conv.y->desc(), algo, size);
    };
    if (!entry.supported) {
      Refuses(get(c, &bytes), CUDNN_STATUS_NOT_SUPPORTED, "does not support this convolution");
      continue;
    }
    Succeeds(get(c, &bytes));
    Succeeds(get(other, &other_bytes));
    CHECK(bytes == entry.workspace);
    if (bytes == 0) continue;
    CHECK(bytes != other_bytes);
    const Device workspace(bytes / 4 + 1);
    Refuses(c.Forward(entry.algo, bytes - 1, &workspace), CUDNN_STATUS_BAD_PARAM, "workspace");
    Refuses(c.Forward(entry.algo, bytes, nullptr), CUDNN_STATUS_BAD_PARAM, "workSpace is null");
  }
}

TEST_CASE("a workspace holds nothing after a call, and must be its caller's") {
  const Session session;
  const Cudnn cudnn;
  const Conv c(cudnn, Cases()[0]);
  const int algo = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  const Buffer kept(cudnn.stream, std::vector<float>(256, 7));
  Succeeds(cudnnConvolutionForward(cudnn, &kOne, c.x.desc(), c.x.get(), c.filter, c.w.get(), c.conv,
                                   static_cast<cudnnConvolutionFwdAlgo_t>(algo), kept.get(), 1024,
                                   &kZero, c.y->desc(), c.y->get()));
  for (const float value : kept.Values()) CHECK(std::isnan(value));
  const Device small(16);
  CHECK(c.Forward(algo, 4096, &small) == CUDNN_STATUS_EXECUTION_FAILED);
  Refused("workSpace");
  Refuses(cudnnConvolutionForward(cudnn, &kOne, c.x.desc(), c.x.get(), c.filter, c.w.get(), c.conv,
                                  static_cast<cudnnConvolutionFwdAlgo_t>(algo), c.x.get(), 1024,
                                  &kZero, c.y->desc(), c.y->get()),
          CUDNN_STATUS_BAD_PARAM, "workSpace overlaps x");
}

TEST_CASE("deterministic algorithms repeat their bits, the others do not") {
  const Session session;
  const Cudnn cudnn;
  Conv c(cudnn, {.x = {7, 5, 9, 9}, .w = {8, 5, 3, 3}, .pad = 1});
  const std::vector<float> x = c.x.Values(), dy = Numbers(c.y->Values().size(), 5);
  const auto distinct = [&](const Entry& entry, auto run, auto values) {
    std::vector<std::vector<float>> results;
    for (int i = 0; i < 6; ++i) {
      RunWith(cudnn, entry, run);
      results.push_back(values());
    }
    return std::any_of(results.begin(), results.end(),
                       [&](const auto& r) { return r != results[0]; });
  };
  c.y->Set(dy);
  for (const Entry& entry : BackwardDataList(cudnn, c)) {
    if (!entry.supported) continue;
    CHECK(distinct(
              entry, [&](auto... a) { return c.BackwardData(a...); },
              [&] { return c.x.Values(); }) != entry.deterministic);
  }
  c.x.Set(x);
  for (const Entry& entry : BackwardFilterList(cudnn, c)) {
    if (!entry.supported) continue;
    CHECK(distinct(
              entry, [&](auto... a) { return c.BackwardFilter(a...); },
              [&] { return c.w.Values(); }) != entry.deterministic);
  }
  for (const Entry& entry : ForwardList(cudnn, c)) {
    if (!entry.supported) continue;
    CHECK_FALSE(distinct(
        entry, [&](auto... a) { return c.Forward(a...); }, [&] { return c.y->Values(); }));
  }
}

TEST_CASE("default math rounds inputs to TF32 only when told to, FMA math never") {
  const Session session;
  const Cudnn cudnn;
  const auto square = [&](cudnnMathType_t math) {
    Conv c(cudnn, {.x = {1, 1, 1, 1}, .w = {1, 1, 1, 1}}, math);
    c.x.Set({1 + 1.0F / 4096});  // 12 bits of mantissa
    c.w.Set({1});
    Succeeds(c.Forward(0, 0, nullptr));
    return c.y->Values()[0];
  };
  CHECK(square(CUDNN_DEFAULT_MATH) == 1 + 1.0F / 4096);
  setenv("CUDA_EMULATOR_TF32", "1", 1);
  CHECK(square(CUDNN_DEFAULT_MATH) == 1);
  CHECK(square(CUDNN_FMA_MATH) == 1 + 1.0F / 4096);
  unsetenv("CUDA_EMULATOR_TF32");
}

TEST_CASE("strided inputs and outputs are read and written in place") {
  const Session session;
  const Cudnn cudnn;
  Conv c(cudnn, {.x = {1, 2, 1, 1}, .w = {2, 2, 1, 1}});
  c.w.Set({1, 10, 100, 1000});
  const Tensor x(cudnn, {1, 4, 1, 1}, {1, -1, 2, -1}), y(cudnn, {1, 4, 1, 1}, {7, 7, 7, 7});
  const TensorDescriptor apart;
  Succeeds(cudnnSetTensor4dDescriptorEx(apart, CUDNN_DATA_FLOAT, 1, 2, 1, 1, 4, 2, 1, 1));
  Succeeds(cudnnConvolutionForward(cudnn, &kOne, apart, x.get(), c.filter, c.w.get(), c.conv,
                                   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &kZero,
                                   apart, y.get()));
  CHECK(y.Values() == std::vector<float>{21, 7, 2100, 7});
}

TEST_CASE("finding algorithms overwrites the output") {
  const Session session;
  const Cudnn cudnn;
  Conv c(cudnn, Cases()[0]);
  c.y->Set(Numbers(c.y->Values().size(), 1));
  const Device workspace(64);
  cudnnConvolutionFwdAlgoPerf_t perfs[20];
  int returned = 0;
  Succeeds(cudnnFindConvolutionForwardAlgorithmEx(cudnn, c.x.desc(), c.x.get(), c.filter, c.w.get(),
                                                  c.conv, c.y->desc(), c.y->get(), 20, &returned,
                                                  perfs, workspace.get(), workspace.bytes()));
  CHECK(returned > 0);
  for (int i = 0; i < returned; ++i) {
    if (perfs[i].status == CUDNN_STATUS_SUCCESS) CHECK(perfs[i].memory <= workspace.bytes());
  }
  CHECK(std::isnan(c.y->Values()[0]));
}

TEST_CASE("convolutions that do not fit their descriptors are refused") {
  const Session session;
  const Cudnn cudnn;
  const Conv c(cudnn, Cases()[0]);
  const auto forward = [&](cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                           cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y) {
    return cudnnConvolutionForward(cudnn, &kOne, x, c.x.get(), w, c.w.get(), conv,
                                   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &kZero, y,
                                   c.y->get());
  };
  const TensorDescriptor tensor;
  Refuses(forward(tensor, c.filter, c.conv, c.y->desc()), CUDNN_STATUS_BAD_PARAM, "never set");
  Refuses(forward(c.x.desc(), c.filter, c.conv, c.x.desc()), CUDNN_STATUS_BAD_PARAM,
          "has not the output's dimensions");
  Succeeds(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_HALF, 2, 3, 5, 6));
  Refuses(forward(tensor, c.filter, c.conv, c.y->desc()), CUDNN_STATUS_NOT_SUPPORTED,
          "is not of CUDNN_DATA_FLOAT");
  Succeeds(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 5, 6));
  Refuses(forward(tensor, c.filter, c.conv, c.y->desc()), CUDNN_STATUS_BAD_PARAM,
          "number of input channels");
  Succeeds(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 1, 6));
  const FilterDescriptor filter;
  Succeeds(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, 3, 9, 3));
  Refuses(forward(tensor, filter, c.conv, c.y->desc()), CUDNN_STATUS_BAD_PARAM, "larger than");
  Succeeds(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 4, 3, 3, 3));
  Refuses(forward(c.x.desc(), filter, c.conv, c.y->desc()), CUDNN_STATUS_NOT_SUPPORTED,
          "is not of CUDNN_TENSOR_NCHW");
  const ConvolutionDescriptor conv;
  Refuses(cudnnSetConvolutionGroupCount(conv, 2), CUDNN_STATUS_BAD_PARAM, "never set");
  Refuses(cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH), CUDNN_STATUS_BAD_PARAM, "never set");
  const auto set = [&](int pad, int stride, int dilation) {
    return cudnnSetConvolution2dDescriptor(conv, pad, pad, stride, stride, dilation, dilation,
                                           CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
  };
  Refuses(set(-1, 1, 1), CUDNN_STATUS_BAD_PARAM, "padding");
  Refuses(set(0, 0, 1), CUDNN_STATUS_BAD_PARAM, "stride");
  Refuses(set(0, 1, 0), CUDNN_STATUS_BAD_PARAM, "dilation");
  Succeeds(set(1, 1, 1));
  Refuses(cudnnSetConvolutionGroupCount(conv, 0), CUDNN_STATUS_BAD_PARAM, "groupCount");
  Succeeds(cudnnSetConvolutionGroupCount(conv, 2));
  Refuses(forward(c.x.desc(), c.filter, conv, c.y->desc()), CUDNN_STATUS_BAD_PARAM,
          "does not divide");
  Refuses(cudnnConvolutionForward(cudnn, &kOne, c.x.desc(), c.x.get(), c.filter, c.w.get(), c.conv,
                                  CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, nullptr, 0, &kZero,
                                  c.y->desc(), c.y->get()),
          CUDNN_STATUS_NOT_SUPPORTED, "does not support");
  Refuses(c.Forward(99, 0, nullptr), CUDNN_STATUS_BAD_PARAM, "is no algorithm");
}

}  // namespace
}  // namespace cuda_emulator_test
