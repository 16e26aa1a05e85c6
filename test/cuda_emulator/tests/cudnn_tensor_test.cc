#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "cudnn_session.h"

namespace cuda_emulator_test {
namespace {

TEST_CASE("a tensor's strides follow its format, and its size counts the gaps") {
  const Session session;
  const TensorDescriptor tensor;
  cudnnDataType_t type{};
  int n = 0, c = 0, h = 0, w = 0, sn = 0, sc = 0, sh = 0, sw = 0;
  Succeeds(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 3, 4, 5));
  Succeeds(cudnnGetTensor4dDescriptor(tensor, &type, &n, &c, &h, &w, &sn, &sc, &sh, &sw));
  CHECK(std::vector<int>{n, c, h, w, sn, sc, sh, sw} == std::vector<int>{2, 3, 4, 5, 60, 1, 15, 3});
  Succeeds(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 4, 5));
  Succeeds(cudnnGetTensor4dDescriptor(tensor, &type, &n, &c, &h, &w, &sn, &sc, &sh, &sw));
  CHECK(std::vector<int>{sn, sc, sh, sw} == std::vector<int>{60, 20, 5, 1});
  Succeeds(cudnnSetTensor4dDescriptorEx(tensor, CUDNN_DATA_FLOAT, 2, 3, 4, 5, 100, 20, 5, 1));
  size_t bytes = 0;
  Succeeds(cudnnGetTensorSizeInBytes(tensor, &bytes));
  CHECK(bytes == 160 * sizeof(float));
}

TEST_CASE("impossible tensors are refused") {
  const Session session;
  const TensorDescriptor tensor;
  const auto set = [&](int n, int w) {
    return cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, 3, 4, w);
  };
  Refuses(set(0, 5), CUDNN_STATUS_BAD_PARAM, "dimension is zero or negative");
  Refuses(set(2, -5), CUDNN_STATUS_BAD_PARAM, "dimension is zero or negative");
  Refuses(set(1 << 20, 1 << 20), CUDNN_STATUS_NOT_SUPPORTED, "2 Giga-elements");
  Refuses(cudnnSetTensor4dDescriptorEx(tensor, CUDNN_DATA_FLOAT, 2, 3, 4, 5, 60, 20, 5, 0),
          CUDNN_STATUS_BAD_PARAM, "stride");
  const int dims[] = {2, 3}, strides[] = {3, 1};
  Refuses(cudnnSetTensorNdDescriptor(tensor, CUDNN_DATA_FLOAT, 2, dims, strides),
          CUDNN_STATUS_NOT_SUPPORTED, "nbDims");
  Refuses(cudnnSetTensor4dDescriptor(tensor, static_cast<cudnnTensorFormat_t>(9), CUDNN_DATA_FLOAT,
                                     1, 1, 1, 1),
          CUDNN_STATUS_BAD_PARAM, "format");
  Refuses(cudnnSetTensor4dDescriptor(nullptr, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 1),
          CUDNN_STATUS_BAD_PARAM, "no live descriptor");
}

TEST_CASE("handles and descriptors that live count as leaks, and dead ones are refused") {
  const Session session;
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t tensor = nullptr;
  Succeeds(cudnnCreate(&handle));
  Succeeds(cudnnCreateTensorDescriptor(&tensor));
  CHECK(cuda_emulator::LiveHandles("cudnnHandle_t") == 1);
  CHECK(cuda_emulator::LiveHandles("cudnnTensorDescriptor_t") == 1);
  CHECK(cuda_emulator::Leaks().size() == 2);
  Succeeds(cudnnDestroyTensorDescriptor(tensor));
  Succeeds(cudnnDestroy(handle));
  Refuses(cudnnDestroyTensorDescriptor(tensor), CUDNN_STATUS_BAD_PARAM, "no live descriptor");
  Refuses(cudnnDestroy(handle), CUDNN_STATUS_NOT_INITIALIZED, "no live handle");
}

TEST_CASE("a handle without stream, or of another device, is refused") {
  const Session session;
  cuda_emulator::SetDeviceCount(2);
  {
    cudnnHandle_t handle = nullptr;
    Succeeds(cudnnCreate(&handle));
    const Stream stream;
    const Device memory(1);
    const TensorDescriptor tensor;
    Succeeds(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 1));
    const auto set = [&] { return cudnnSetTensor(handle, tensor, memory.get(), &kOne); };
    Refuses(set(), CUDNN_STATUS_BAD_PARAM, "no stream");
    CHECK(cudnnSetStream(handle, nullptr) == CUDNN_STATUS_EXECUTION_FAILED);
    Refused("cudnnSetStream");
    Succeeds(cudnnSetStream(handle, stream));
    Succeeds(cudaSetDevice(1));
    Refuses(set(), CUDNN_STATUS_BAD_PARAM, "another device");
    {
      const Stream elsewhere;
      Succeeds(cudaSetDevice(0));
      Refuses(cudnnSetStream(handle, elsewhere), CUDNN_STATUS_BAD_PARAM, "another device");
      Succeeds(cudaSetDevice(1));
    }
    Succeeds(cudaSetDevice(0));
    Succeeds(set());
    stream.Wait();
    Succeeds(cudnnDestroy(handle));
  }
}

TEST_CASE("descriptors and scalars are taken when a function is called") {
  const Session session(
      {.mode = cuda_emulator::Mode::kScheduled, .policy = cuda_emulator::Policy::kLazy});
  const Cudnn cudnn;
  const Tensor x(cudnn, {1, 1, 1, 2}, {1, 2}), y(cudnn, {1, 1, 1, 2}, {0, 0});
  float alpha = 3;
  {
    const TensorDescriptor described;
    Succeeds(
        cudnnSetTensor4dDescriptor(described, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 2));
    Succeeds(cudnnAddTensor(cudnn, &alpha, described, x.get(), &kZero, described, y.get()));
    alpha = 99;
    Succeeds(
        cudnnSetTensor4dDescriptor(described, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 1));
  }
  CHECK(y.Values() == std::vector<float>{3, 6});
}

TEST_CASE("memory that is not the device's, too short, or shared with an output is refused") {
  const Session session;
  const Cudnn cudnn;
  const Tensor x(cudnn, {1, 2, 1, 2}, 1), small(cudnn, {1, 1, 1, 2}, 1);
  const auto add = [&](const void* from, void* to, const void* alpha) {
    return cudnnTransformTensor(cudnn, alpha, x.desc(), from, &kZero, x.desc(), to);
  };
  float host[4] = {};
  CHECK(add(host, x.get(), &kOne) == CUDNN_STATUS_EXECUTION_FAILED);
  Refused("cudnnTransformTensor");
  CHECK(add(x.get(), small.get(), &kOne) == CUDNN_STATUS_EXECUTION_FAILED);
  Refused("cudnnTransformTensor");
  Refuses(add(nullptr, x.get(), &kOne), CUDNN_STATUS_BAD_PARAM, "x is null");
  Refuses(add(x.get(), x.get(), &kOne), CUDNN_STATUS_BAD_PARAM, "y overlaps x");
  Refuses(add(x.get(), small.get(), x.get()), CUDNN_STATUS_BAD_PARAM, "alpha is device memory");
  Refuses(add(x.get(), small.get(), nullptr), CUDNN_STATUS_BAD_PARAM, "alpha is null");
}

TEST_CASE("a failed call leaves its text for cudnnGetLastErrorString") {
  const Session session;
  const TensorDescriptor tensor;
  Refuses(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 0, 1, 1, 1),
          CUDNN_STATUS_BAD_PARAM, "dimension");
  char text[200];
  cudnnGetLastErrorString(text, sizeof text);
  CHECK_THAT(std::string(text), ContainsSubstring("cudnnSetTensor4dDescriptor: dimension"));
  cuda_emulator::FailCall(1);
  CHECK(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 1) !=
        CUDNN_STATUS_SUCCESS);
  CHECK(cuda_emulator::CallFailed());
}

TEST_CASE("set, scale, transform and add reach every element once, gaps never") {
  const Session session;
  const Cudnn cudnn;
  const Tensor y(cudnn, {1, 2, 2, 3}, std::vector<float>(12, NAN));
  const TensorDescriptor gaps;  // the first two of each row of three
  Succeeds(cudnnSetTensor4dDescriptorEx(gaps, CUDNN_DATA_FLOAT, 1, 2, 2, 2, 12, 6, 3, 1));
  const float two = 2, three = 3;
  y.Set(std::vector<float>(12, 9));
  Succeeds(cudnnSetTensor(cudnn, gaps, y.get(), &two));
  Succeeds(cudnnScaleTensor(cudnn, gaps, y.get(), &three));
  CHECK(y.Values() == std::vector<float>{6, 6, 9, 6, 6, 9, 6, 6, 9, 6, 6, 9});
  const Tensor bias(cudnn, {1, 2, 1, 1}, {10, 20});
  Succeeds(cudnnAddTensor(cudnn, &kOne, bias.desc(), bias.get(), &kOne, gaps, y.get()));
  CHECK(y.Values() == std::vector<float>{16, 16, 9, 16, 16, 9, 26, 26, 9, 26, 26, 9});

  const Tensor from(cudnn, {1, 2, 1, 3}, {1, 2, 3, 4, 5, 6}), to(cudnn, {1, 3, 1, 2}, 7);
  const TensorDescriptor nhwc;
  Succeeds(cudnnSetTensor4dDescriptor(nhwc, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1, 2, 1, 3));
  Succeeds(cudnnTransformTensor(cudnn, &two, from.desc(), from.get(), &kZero, nhwc, to.get()));
  CHECK(to.Values() == std::vector<float>{2, 8, 4, 10, 6, 12});
  Refuses(cudnnAddTensor(cudnn, &kOne, from.desc(), from.get(), &kOne, to.desc(), to.get()),
          CUDNN_STATUS_BAD_PARAM, "neither 1 nor the result's");
  const TensorDescriptor overlapping;
  Succeeds(cudnnSetTensor4dDescriptorEx(overlapping, CUDNN_DATA_FLOAT, 1, 2, 2, 2, 4, 1, 2, 1));
  Refuses(cudnnSetTensor(cudnn, overlapping, y.get(), &two), CUDNN_STATUS_NOT_SUPPORTED,
          "overlapping strides");
}

TEST_CASE("cudnnOpTensor combines scaled tensors, the second broadcast, in place of the first") {
  const Session session;
  const Cudnn cudnn;
  const Tensor a(cudnn, {1, 2, 1, 2}, {1, 2, 3, 4}), b(cudnn, {1, 2, 1, 1}, {10, -10});
  const Tensor c(cudnn, {1, 2, 1, 2}, std::vector<float>(4, NAN));
  const OpTensorDescriptor op;
  const auto run = [&](cudnnOpTensorOp_t kind, float alpha2 = 1, float beta = 0) {
    Succeeds(cudnnSetOpTensorDescriptor(op, kind, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN));
    const float two = 2;
    Succeeds(cudnnOpTensor(cudnn, op, &two, a.desc(), a.get(), &alpha2, b.desc(), b.get(), &beta,
                           c.desc(), c.get()));
    return c.Values();
  };
  CHECK(run(CUDNN_OP_TENSOR_ADD) == std::vector<float>{12, 14, -4, -2});
  CHECK(run(CUDNN_OP_TENSOR_ADD, 1, 1) == std::vector<float>{24, 28, -8, -4});
  CHECK(run(CUDNN_OP_TENSOR_MUL, 0.5F) == std::vector<float>{10, 20, -30, -40});
  CHECK(run(CUDNN_OP_TENSOR_MIN) == std::vector<float>{2, 4, -10, -10});
  CHECK(run(CUDNN_OP_TENSOR_MAX) == std::vector<float>{10, 10, 6, 8});
  CHECK(run(CUDNN_OP_TENSOR_NOT) == std::vector<float>{-1, -3, -5, -7});
  a.Set({2, 8, 18, 32});
  CHECK(run(CUDNN_OP_TENSOR_SQRT) == std::vector<float>{2, 4, 6, 8});

  const auto in_place = [&](const Tensor& first, const Tensor& second, const Tensor& result) {
    return cudnnOpTensor(cudnn, op, &kOne, first.desc(), first.get(), &kOne, second.desc(),
                         second.get(), &kZero, result.desc(), result.get());
  };
  Succeeds(
      cudnnSetOpTensorDescriptor(op, CUDNN_OP_TENSOR_ADD, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN));
  Succeeds(in_place(a, b, a));
  CHECK(a.Values() == std::vector<float>{12, 18, 8, 22});
  Refuses(in_place(a, c, c), CUDNN_STATUS_BAD_PARAM, "B is C");
  Succeeds(in_place(c, c, c));
  Refuses(in_place(b, a, c), CUDNN_STATUS_BAD_PARAM, "aDesc has other dimensions");
}

TEST_CASE("cudnnReduceTensor reduces the axes where the result has 1") {
  const Session session;
  const Cudnn cudnn;
  const Tensor a(cudnn, {2, 2, 1, 3}, {1, -2, 3, 0, 5, 6, -7, 8, 9, 10, 11, 12});
  const Tensor c(cudnn, {1, 2, 1, 1}, {NAN, NAN});
  const ReduceTensorDescriptor op;
  const Device workspace(256);
  const auto run = [&](cudnnReduceTensorOp_t kind, float alpha = 1, float beta = 0) {
    Succeeds(cudnnSetReduceTensorDescriptor(op, kind, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN,
                                            CUDNN_REDUCE_TENSOR_NO_INDICES, CUDNN_32BIT_INDICES));
    Succeeds(cudnnReduceTensor(cudnn, op, nullptr, 0, workspace.get(), workspace.bytes(), &alpha,
                               a.desc(), a.get(), &beta, c.desc(), c.get()));
    return c.Values();
  };
  CHECK(run(CUDNN_REDUCE_TENSOR_ADD) == std::vector<float>{12, 44});
  CHECK(run(CUDNN_REDUCE_TENSOR_ADD, 2, 1) == std::vector<float>{36, 132});
  CHECK(run(CUDNN_REDUCE_TENSOR_AVG) == std::vector<float>{2, 44.0F / 6});
  CHECK(run(CUDNN_REDUCE_TENSOR_MIN) == std::vector<float>{-7, 0});
  CHECK(run(CUDNN_REDUCE_TENSOR_MAX) == std::vector<float>{9, 12});
  CHECK(run(CUDNN_REDUCE_TENSOR_AMAX) == std::vector<float>{9, 12});
  CHECK(run(CUDNN_REDUCE_TENSOR_NORM1) == std::vector<float>{30, 44});
  CHECK(run(CUDNN_REDUCE_TENSOR_NORM2)[0] == std::sqrt(208.0F));
  CHECK(run(CUDNN_REDUCE_TENSOR_MUL) == std::vector<float>{3024, 0});
  CHECK(run(CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS) == std::vector<float>{3024, 39600});
}

TEST_CASE("cudnnReduceTensor gives indices along the reduced axes, and asks for its workspace") {
  const Session session;
  const Cudnn cudnn;
  const Tensor a(cudnn, {2, 2, 1, 2}, {1, 2, 3, 4, 8, 7, 6, 5}), c(cudnn, {1, 2, 1, 1}, 1);
  const ReduceTensorDescriptor op;
  const auto set = [&](cudnnReduceTensorOp_t kind) {
    Succeeds(cudnnSetReduceTensorDescriptor(op, kind, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN,
                                            CUDNN_REDUCE_TENSOR_FLATTENED_INDICES,
                                            CUDNN_32BIT_INDICES));
  };
  const auto run = [&](size_t indices_bytes, const Buffer& indices, size_t workspace_bytes,
                       const Tensor& result) {
    const Device workspace(64);
    const cudnnStatus_t status =
        cudnnReduceTensor(cudnn, op, indices.get(), indices_bytes, workspace.get(), workspace_bytes,
                          &kOne, a.desc(), a.get(), &kZero, result.desc(), result.get());
    cudnn.stream.Wait();
    return status;
  };
  set(CUDNN_REDUCE_TENSOR_MAX);
  size_t indices_bytes = 0, workspace_bytes = 0;
  Succeeds(cudnnGetReductionIndicesSize(cudnn, op, a.desc(), c.desc(), &indices_bytes));
  Succeeds(cudnnGetReductionWorkspaceSize(cudnn, op, a.desc(), c.desc(), &workspace_bytes));
  CHECK(indices_bytes == 8);
  const Buffer indices(cudnn.stream, {0, 0});
  Succeeds(run(indices_bytes, indices, workspace_bytes, c));
  const std::vector<float> raw = indices.Values();
  uint32_t found[2];
  std::memcpy(found, raw.data(), sizeof found);
  CHECK(std::vector<uint32_t>{found[0], found[1]} == std::vector<uint32_t>{2, 2});
  CHECK(c.Values() == std::vector<float>{8, 6});
  Refuses(run(7, indices, workspace_bytes, c), CUDNN_STATUS_INVALID_VALUE, "indicesSizeInBytes");
  Refuses(run(8, indices, workspace_bytes - 1, c), CUDNN_STATUS_INVALID_VALUE,
          "workspaceSizeInBytes");
  Refuses(run(8, indices, workspace_bytes, a), CUDNN_STATUS_NOT_SUPPORTED, "nothing to reduce");
  set(CUDNN_REDUCE_TENSOR_ADD);
  Refuses(run(8, indices, workspace_bytes, c), CUDNN_STATUS_BAD_PARAM, "MIN, MAX and AMAX only");
}

TEST_CASE("the gradient of a bias sums all but the channels") {
  const Session session;
  const Cudnn cudnn;
  const Tensor dy(cudnn, {2, 2, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
      db(cudnn, {1, 2, 1, 1}, {NAN, NAN});
  Succeeds(
      cudnnConvolutionBackwardBias(cudnn, &kOne, dy.desc(), dy.get(), &kZero, db.desc(), db.get()));
  CHECK(db.Values() == std::vector<float>{14, 22});
  Refuses(
      cudnnConvolutionBackwardBias(cudnn, &kOne, dy.desc(), dy.get(), &kZero, dy.desc(), db.get()),
      CUDNN_STATUS_BAD_PARAM, "1, K, 1, 1");
}

}  // namespace
}  // namespace cuda_emulator_test
