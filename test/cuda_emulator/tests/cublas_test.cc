#include <cublas_v2.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "cudnn_session.h"

namespace cuda_emulator_test {
namespace {

using cuda_emulator_test::Succeeds;

void Succeeds(cublasStatus_t status) {
  CHECK(std::string(cublasGetStatusName(status)) == "CUBLAS_STATUS_SUCCESS");
}

void Refuses(cublasStatus_t status, cublasStatus_t expected, const std::string& text) {
  INFO(text);
  CHECK(std::string(cublasGetStatusName(status)) == cublasGetStatusName(expected));
  Refused(text);
}

class Cublas {
 public:
  Cublas() {
    Succeeds(cublasCreate(&handle_));
    Succeeds(cublasSetStream(handle_, stream));
  }
  ~Cublas() { Succeeds(cublasDestroy(handle_)); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  operator cublasHandle_t() const { return handle_; }

  const Stream stream;

 private:
  cublasHandle_t handle_ = nullptr;
};

constexpr cublasOperation_t kOperations[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};

float At(const std::vector<float>& matrix, int i, int j, int ld, cublasOperation_t op) {
  return matrix[static_cast<size_t>(op == CUBLAS_OP_N ? i + j * ld : j + i * ld)];
}

TEST_CASE("gemm equals a triple loop for all transposes and leading dimensions") {
  const Session session;
  const Cublas cublas;
  const int m = 3, n = 4, k = 5;
  const float alpha = 0.5F, beta = 2;
  for (const auto transa : kOperations) {
    for (const auto transb : kOperations) {
      for (const int extra : {0, 2}) {
        const int lda = (transa == CUBLAS_OP_N ? m : k) + extra;
        const int ldb = (transb == CUBLAS_OP_N ? k : n) + extra, ldc = m + extra;
        const auto a = Numbers(static_cast<size_t>(lda * (transa == CUBLAS_OP_N ? k : m)), 1);
        const auto b = Numbers(static_cast<size_t>(ldb * (transb == CUBLAS_OP_N ? n : k)), 2);
        const auto c = Numbers(static_cast<size_t>(ldc * n), 3);
        const Buffer da(cublas.stream, a), db(cublas.stream, b), dc(cublas.stream, c);
        Succeeds(cublasSgemm(cublas, transa, transb, m, n, k, &alpha, da.get(), lda, db.get(), ldb,
                             &beta, dc.get(), ldc));
        std::vector<double> expected(c.begin(), c.end());
        for (int j = 0; j < n; ++j) {
          for (int i = 0; i < m; ++i) {
            double sum = 0;
            for (int l = 0; l < k; ++l) {
              sum += static_cast<double>(At(a, i, l, lda, transa)) * At(b, l, j, ldb, transb);
            }
            double& to = expected[static_cast<size_t>(i + j * ldc)];
            to = alpha * sum + beta * to;
          }
        }
        Near(dc.Values(), expected, 1e-6);
      }
    }
  }
}

TEST_CASE("gemm with beta 0 does not read C, and without a sum scales it") {
  const Session session;
  const Cublas cublas;
  const Buffer a(cublas.stream, {2}), c(cublas.stream, {NAN});
  const float beta = 3;
  Succeeds(cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, a.get(), 1, a.get(), 1,
                       &kZero, c.get(), 1));
  CHECK(c.Values()[0] == 4);
  Succeeds(cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 0, &kOne, a.get(), 1, a.get(), 1,
                       &beta, c.get(), 1));
  CHECK(c.Values()[0] == 12);
}

TEST_CASE("a batched gemm steps by its strides, and 0 repeats an input") {
  const Session session;
  const Cublas cublas;
  const Buffer a(cublas.stream, {1, 2, 3}), b(cublas.stream, {10}),
      c(cublas.stream, {0, 9, 0, 9, 0});
  Succeeds(cublasSgemmStridedBatched(cublas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, a.get(), 1,
                                     1, b.get(), 1, 0, &kZero, c.get(), 1, 2, 3));
  CHECK(c.Values() == std::vector<float>{10, 9, 20, 9, 30});
  Refuses(cublasSgemmStridedBatched(cublas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, a.get(), 1, 1,
                                    b.get(), 1, 0, &kZero, c.get(), 1, 0, 3),
          CUBLAS_STATUS_INVALID_VALUE, "results overlap");
}

// Heads side by side in the rows of a packed matrix, as attention has them.
TEST_CASE("a batched gemm takes matrices that interleave, and writes nothing between them") {
  const Session session;
  const Cublas cublas;
  const int m = 3, n = 4, k = 2, batch = 3;
  const int ld = 16;  // of all: three matrices side by side and a gap
  const float alpha = 0.5F, beta = 2;
  for (const auto transa : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (const auto transb : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      const int a_rows = transa == CUBLAS_OP_N ? m : k, b_rows = transb == CUBLAS_OP_N ? k : n;
      const int a_columns = m + k - a_rows, b_columns = n + k - b_rows;
      const auto a = Numbers(static_cast<size_t>(ld * a_columns), 1);
      const auto b = Numbers(static_cast<size_t>(ld * b_columns), 2);
      const auto c = Numbers(static_cast<size_t>(ld * n), 3);
      const Buffer da(cublas.stream, a), db(cublas.stream, b), dc(cublas.stream, c);
      Succeeds(cublasSgemmStridedBatched(cublas, transa, transb, m, n, k, &alpha, da.get(), ld,
                                         a_rows, db.get(), ld, b_rows, &beta, dc.get(), ld, m,
                                         batch));
      std::vector<double> expected(c.begin(), c.end());
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          for (int h = 0; h < batch; ++h) {
            const std::vector<float> a_h(a.begin() + h * a_rows, a.end());
            const std::vector<float> b_h(b.begin() + h * b_rows, b.end());
            double sum = 0;
            for (int l = 0; l < k; ++l) {
              sum += static_cast<double>(At(a_h, i, l, ld, transa)) * At(b_h, l, j, ld, transb);
            }
            double& to = expected[static_cast<size_t>(h * m + i + j * ld)];
            to = alpha * sum + beta * to;
          }
        }
      }
      Near(dc.Values(), expected, 1e-6);
    }
  }
}

TEST_CASE("a batched gemm whose matrices do not fit or share results is refused") {
  const Session session;
  const Cublas cublas;
  const Buffer a(cublas.stream, Numbers(24, 1)), b(cublas.stream, Numbers(24, 2)),
      c(cublas.stream, Numbers(24, 3));
  struct Arguments {
    int m = 2, lda = 2, ldb = 2, ldc = 2, batch = 6;
    long long stride_a = 4, stride_b = 4, stride_c = 4;
    float* c = nullptr;
  };
  const auto gemm = [&](const Arguments& v) {
    return cublasSgemmStridedBatched(cublas, CUBLAS_OP_N, CUBLAS_OP_N, v.m, 2, 2, &kOne, a.get(),
                                     v.lda, v.stride_a, b.get(), v.ldb, v.stride_b, &kZero,
                                     v.c ? v.c : c.get(), v.ldc, v.stride_c, v.batch);
  };
  Succeeds(gemm({}));
  Succeeds(gemm({.batch = 0}));
  Succeeds(gemm({.stride_a = 1, .stride_b = 0}));  // inputs may share elements
  Refuses(gemm({.batch = -1}), CUBLAS_STATUS_INVALID_VALUE, "batchCount is negative");
  Refuses(gemm({.lda = 1}), CUBLAS_STATUS_INVALID_VALUE, "lda");
  Refuses(gemm({.ldb = 1}), CUBLAS_STATUS_INVALID_VALUE, "ldb");
  Refuses(gemm({.ldc = 1}), CUBLAS_STATUS_INVALID_VALUE, "ldc");
  for (const long long stride : {1, 2, 3}) {
    Refuses(gemm({.stride_c = stride}), CUBLAS_STATUS_INVALID_VALUE, "results overlap");
  }
  Succeeds(gemm({.ldc = 12, .batch = 6, .stride_c = 2}));  // side by side
  Refuses(gemm({.ldc = 11, .batch = 6, .stride_c = 2}), CUBLAS_STATUS_INVALID_VALUE,
          "results overlap");
  Refuses(gemm({.stride_a = -4}), CUBLAS_STATUS_NOT_SUPPORTED, "negative");
  Refuses(gemm({.c = a.get()}), CUBLAS_STATUS_INVALID_VALUE, "C overlaps A");
  // The last matrix past the end.
  for (const Arguments& v : {Arguments{.batch = 7}, Arguments{.stride_a = 5},
                             Arguments{.stride_b = 5}, Arguments{.stride_c = 5}}) {
    CHECK(gemm(v) == CUBLAS_STATUS_EXECUTION_FAILED);
    Refused("cublasSgemmStridedBatched");
  }
}

TEST_CASE("TF32 is used when both the caller and CUDA_EMULATOR_TF32 allow it") {
  const Session session;
  const Cublas cublas;
  const float fine = 1 + 1.0F / 4096;
  const Buffer a(cublas.stream, {fine}), b(cublas.stream, {1}), c(cublas.stream, {0});
  const auto gemm = [&](cublasMath_t math) {
    Succeeds(cublasSetMathMode(cublas, math));
    Succeeds(cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, a.get(), 1, b.get(), 1,
                         &kZero, c.get(), 1));
    return c.Values()[0];
  };
  const auto ex = [&](cublasComputeType_t type) {
    Succeeds(cublasGemmEx(cublas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, a.get(), CUDA_R_32F, 1,
                          b.get(), CUDA_R_32F, 1, &kZero, c.get(), CUDA_R_32F, 1, type,
                          CUBLAS_GEMM_DEFAULT));
    return c.Values()[0];
  };
  CHECK(gemm(CUBLAS_TF32_TENSOR_OP_MATH) == fine);
  setenv("CUDA_EMULATOR_TF32", "1", 1);
  CHECK(gemm(CUBLAS_TF32_TENSOR_OP_MATH) == 1);
  CHECK(ex(CUBLAS_COMPUTE_32F_PEDANTIC) == fine);
  CHECK(gemm(CUBLAS_PEDANTIC_MATH) == fine);
  CHECK(gemm(CUBLAS_DEFAULT_MATH) == fine);
  CHECK(ex(CUBLAS_COMPUTE_32F) == fine);
  CHECK(ex(CUBLAS_COMPUTE_32F_FAST_TF32) == 1);
  unsetenv("CUDA_EMULATOR_TF32");
}

TEST_CASE("gemv, ger and geam equal their definitions") {
  const Session session;
  const Cublas cublas;
  // A = [1 3 5; 2 4 6]
  const Buffer a(cublas.stream, {1, 2, 3, 4, 5, 6}), x(cublas.stream, {1, 10, 100});
  const Buffer y(cublas.stream, {1, 1});
  Succeeds(
      cublasSgemv(cublas, CUBLAS_OP_N, 2, 3, &kOne, a.get(), 2, x.get(), 1, &kOne, y.get(), 1));
  CHECK(y.Values() == std::vector<float>{532, 643});
  y.Set({1, 10});
  Succeeds(
      cublasSgemv(cublas, CUBLAS_OP_T, 2, 3, &kOne, a.get(), 2, y.get(), 1, &kZero, x.get(), 1));
  CHECK(x.Values() == std::vector<float>{21, 43, 65});
  x.Set({1, 2, 3});
  Succeeds(cublasSger(cublas, 2, 3, &kOne, y.get(), 1, x.get(), 1, a.get(), 2));
  CHECK(a.Values() == std::vector<float>{2, 12, 5, 24, 8, 36});
  const Buffer c(cublas.stream, std::vector<float>(6, NAN));
  const float two = 2;
  Succeeds(cublasSgeam(cublas, CUBLAS_OP_T, CUBLAS_OP_N, 3, 2, &two, a.get(), 2, &kZero, c.get(), 3,
                       c.get(), 3));
  CHECK(c.Values() == std::vector<float>{4, 10, 16, 24, 48, 72});
  Succeeds(cublasSgeam(cublas, CUBLAS_OP_N, CUBLAS_OP_T, 3, 2, &kOne, c.get(), 3, &two, a.get(), 2,
                       c.get(), 3));
  CHECK(c.Values() == std::vector<float>{8, 20, 32, 48, 96, 144});
  Refuses(cublasSgeam(cublas, CUBLAS_OP_T, CUBLAS_OP_N, 2, 3, &kOne, c.get(), 3, &kOne, a.get(), 2,
                      c.get(), 2),
          CUBLAS_STATUS_INVALID_VALUE, "C is A");
}

TEST_CASE("vector functions step by their increments; results go where the pointer mode says") {
  const Session session;
  const Cublas cublas;
  const Buffer x(cublas.stream, {1, -9, 2, -9, 3}), y(cublas.stream, {10, 20, 30});
  const float two = 2;
  float result = 0;
  Succeeds(cublasSaxpy(cublas, 3, &two, x.get(), 2, y.get(), 1));
  CHECK(y.Values() == std::vector<float>{12, 24, 36});
  Succeeds(cublasSscal(cublas, 3, &two, x.get(), 2));
  CHECK(x.Values() == std::vector<float>{2, -9, 4, -9, 6});
  Succeeds(cublasSdot(cublas, 3, x.get(), 2, y.get(), 1, &result));
  CHECK(result == 336);
  Succeeds(cublasSasum(cublas, 5, x.get(), 1, &result));
  CHECK(result == 30);
  Succeeds(cublasSnrm2(cublas, 1, x.get(), 2, &result));
  CHECK(result == 2);
  Succeeds(cublasScopy(cublas, 3, y.get(), 1, x.get(), 2));
  CHECK(x.Values() == std::vector<float>{12, -9, 24, -9, 36});

  const Buffer device(cublas.stream, {3});
  Refuses(cublasSasum(cublas, 5, x.get(), 1, device.get()), CUBLAS_STATUS_INVALID_VALUE,
          "result is device memory");
  Succeeds(cublasSetPointerMode(cublas, CUBLAS_POINTER_MODE_DEVICE));
  Succeeds(cublasSscal(cublas, 3, device.get(), y.get(), 1));
  CHECK(y.Values() == std::vector<float>{36, 72, 108});
  Succeeds(cublasSasum(cublas, 3, y.get(), 1, device.get()));
  CHECK(device.Values()[0] == 216);
  CHECK(cublasSscal(cublas, 3, &two, y.get(), 1) == CUBLAS_STATUS_EXECUTION_FAILED);
  Refused("alpha");
}

TEST_CASE("a workspace is the user's until the stream is set again") {
  const Session session;
  const Cublas cublas;
  const Buffer a(cublas.stream, {1}), c(cublas.stream, {0});
  const Buffer workspace(cublas.stream, std::vector<float>(64, 7));
  const auto gemm = [&] {
    Succeeds(cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, a.get(), 1, a.get(), 1,
                         &kZero, c.get(), 1));
  };
  Succeeds(cublasSetWorkspace(cublas, workspace.get(), 256));
  gemm();
  CHECK(std::isnan(workspace.Values()[63]));
  workspace.Set(std::vector<float>(64, 7));
  Succeeds(cublasSetStream(cublas, cublas.stream));
  gemm();
  CHECK(workspace.Values()[63] == 7);
  Refuses(cublasSetWorkspace(cublas, workspace.get() + 1, 128), CUBLAS_STATUS_INVALID_VALUE,
          "not aligned");
  CHECK(cublasSetWorkspace(cublas, workspace.get(), 512) == CUBLAS_STATUS_EXECUTION_FAILED);
  Refused("workspace");
}

TEST_CASE("one handle on several streams repeats its bits only with a workspace of the user's") {
  const Session session;
  const Cublas cublas;
  const Stream second;
  const int k = 1000;
  const Buffer a(cublas.stream, Numbers(k, 1)), b(cublas.stream, Numbers(k, 2)),
      c(cublas.stream, {0});
  const Buffer workspace(cublas.stream, std::vector<float>(64));
  const auto varies = [&] {
    std::vector<float> first;
    bool other = false;
    for (int i = 0; i < 10; ++i) {
      Succeeds(cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, k, &kOne, a.get(), 1, b.get(), k,
                           &kZero, c.get(), 1));
      second.Wait();
      if (i == 0) first = c.Values();
      other = other || c.Values() != first;
    }
    return other;
  };
  CHECK_FALSE(varies());
  Succeeds(cublasSetStream(cublas, second));
  CHECK(varies());
  Succeeds(cublasSetWorkspace(cublas, workspace.get(), 256));
  CHECK_FALSE(varies());
}

TEST_CASE("matrices that do not fit, overlap, or are not given are refused") {
  const Session session;
  const Cublas cublas;
  const Buffer a(cublas.stream, Numbers(12, 1)), b(cublas.stream, Numbers(12, 1)),
      c(cublas.stream, Numbers(12, 1));
  struct Arguments {
    cublasOperation_t transa = CUBLAS_OP_N;
    int m = 3, n = 3, k = 4, lda = 3, ldb = 4, ldc = 3;
    const float *a = nullptr, *b = nullptr, *alpha = &kOne;
    float* c = nullptr;
  };
  const auto gemm = [&](const Arguments& v) {
    return cublasSgemm(cublas, v.transa, CUBLAS_OP_N, v.m, v.n, v.k, v.alpha, v.a ? v.a : a.get(),
                       v.lda, v.b ? v.b : b.get(), v.ldb, &kZero, v.c ? v.c : c.get(), v.ldc);
  };
  Succeeds(gemm({}));
  Refuses(gemm({.m = -1}), CUBLAS_STATUS_INVALID_VALUE, "m is negative");
  Refuses(gemm({.lda = 2}), CUBLAS_STATUS_INVALID_VALUE, "lda");
  Refuses(gemm({.transa = CUBLAS_OP_T, .lda = 3}), CUBLAS_STATUS_INVALID_VALUE, "lda");
  Refuses(gemm({.ldb = 3}), CUBLAS_STATUS_INVALID_VALUE, "ldb");
  Refuses(gemm({.ldc = 2}), CUBLAS_STATUS_INVALID_VALUE, "ldc");
  Refuses(gemm({.transa = static_cast<cublasOperation_t>(8)}), CUBLAS_STATUS_INVALID_VALUE,
          "transa");
  Refuses(gemm({.alpha = a.get()}), CUBLAS_STATUS_INVALID_VALUE, "alpha is device memory");
  Refuses(gemm({.c = a.get()}), CUBLAS_STATUS_INVALID_VALUE, "C overlaps A");
  Refuses(gemm({.c = b.get() + 3}), CUBLAS_STATUS_INVALID_VALUE, "C overlaps B");
  CHECK(gemm({.a = a.get() + 1}) == CUBLAS_STATUS_EXECUTION_FAILED);  // past the end
  Refused("cublasSgemm");
  CHECK(gemm({.n = 4, .b = a.get()}) == CUBLAS_STATUS_EXECUTION_FAILED);
  Refused("cublasSgemm");
  Refuses(cublasSaxpy(cublas, 2, &kOne, a.get(), -1, b.get(), 1), CUBLAS_STATUS_NOT_SUPPORTED,
          "incx");
  Refuses(cublasSaxpy(cublas, 2, &kOne, a.get(), 1, a.get() + 1, 1), CUBLAS_STATUS_INVALID_VALUE,
          "y overlaps x");
  Refuses(cublasSetMathMode(cublas, CUBLAS_FP32_EMULATED_BF16X9_MATH), CUBLAS_STATUS_NOT_SUPPORTED,
          "mode");
  Refuses(cublasGemmEx(cublas, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &kOne, a.get(), CUDA_R_16F, 1,
                       b.get(), CUDA_R_32F, 1, &kZero, c.get(), CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT),
          CUBLAS_STATUS_NOT_SUPPORTED, "CUDA_R_32F");
}

TEST_CASE("a handle in use by one thread is refused to another") {
  const Session session;
  const Cublas cublas;
  const Buffer x(cublas.stream, {1, 2});
  std::atomic<bool> go{false};
  const cudaHostFn_t hold = [](void* flag) {
    while (!*static_cast<std::atomic<bool>*>(flag)) std::this_thread::yield();
  };
  Succeeds(cudaLaunchHostFunc(cublas.stream, hold, &go));
  float result = 0;
  const uint64_t waits = cuda_emulator::SynchronizeCount();
  cublasStatus_t status{};
  std::thread other([&] { status = cublasSasum(cublas, 2, x.get(), 1, &result); });  // waits
  while (cuda_emulator::SynchronizeCount() == waits) std::this_thread::yield();
  Refuses(cublasSscal(cublas, 2, &kOne, x.get(), 1), CUBLAS_STATUS_INVALID_VALUE,
          "in use by another thread");
  go = true;
  other.join();
  Succeeds(status);
  CHECK(result == 3);
}

TEST_CASE("a cuBLAS handle must live and have a stream") {
  const Session session;
  cublasHandle_t handle = nullptr;
  Succeeds(cublasCreate(&handle));
  CHECK(cuda_emulator::LiveHandles("cublasHandle_t") == 1);
  const Device x(1);
  Refuses(cublasSscal(handle, 1, &kOne, x.get(), 1), CUBLAS_STATUS_INVALID_VALUE, "no stream");
  CHECK(cublasSetStream(handle, nullptr) == CUBLAS_STATUS_EXECUTION_FAILED);
  Refused("cublasSetStream");
  int version = 0;
  Succeeds(cublasGetVersion(handle, &version));
  CHECK(version == CUBLAS_VERSION);
  Succeeds(cublasDestroy(handle));
  Refuses(cublasDestroy(handle), CUBLAS_STATUS_NOT_INITIALIZED, "no live handle");
}

}  // namespace
}  // namespace cuda_emulator_test
