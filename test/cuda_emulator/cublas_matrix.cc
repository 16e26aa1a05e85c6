// cuBLAS with matrices: gemm, batched gemm, gemv, ger, geam.

#include <algorithm>
#include <vector>

#include "cublas_common.h"

namespace cuda_emulator::library {
namespace {

bool Transposed(cublasOperation_t operation) { return operation != CUBLAS_OP_N; }

struct Gemm {
  cublasOperation_t transa, transb;
  int m, n, k;
  int lda, ldb, ldc;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  int batch = 1;
  bool tf32 = false;
  uint64_t seed = 0;
};

struct GemmData {
  const void *alpha, *a, *b, *beta;
  void* c;
};

// op(A)'s or op(B)'s matrices: `stored_rows` × `stored_columns` each, as they lie in memory.
TensorView Batch(const Gemm& gemm, int stored_rows, int stored_columns, int ld, int64_t stride) {
  if (gemm.batch == 1 || stride == 0) return Matrix(stored_rows, stored_columns, ld);
  return {3, {gemm.batch, stored_columns, stored_rows}, {stride, ld, 1}};
}

void CheckGemm(const Gemm& gemm) {
  RequireOperation(gemm.transa, "transa");
  RequireOperation(gemm.transb, "transb");
  RequireSize(gemm.m, "m");
  RequireSize(gemm.n, "n");
  RequireSize(gemm.k, "k");
  RequireSize(gemm.batch, "batchCount");
  RequireLeading(gemm.lda, Transposed(gemm.transa) ? gemm.k : gemm.m, "lda");
  RequireLeading(gemm.ldb, Transposed(gemm.transb) ? gemm.n : gemm.k, "ldb");
  RequireLeading(gemm.ldc, gemm.m, "ldc");
  Require(gemm.stride_a >= 0 && gemm.stride_b >= 0 && gemm.stride_c >= 0, Fault::kNotSupported,
          "stride", "is negative, which is not emulated");
}

// Element (i, j) of op(matrix), whose matrices lie with leading dimension ld.
struct Elements {
  const float* data;
  int64_t ld;
  bool transposed, tf32;

  float operator()(int64_t i, int64_t j) const {
    const float value = transposed ? data[j + i * ld] : data[i + j * ld];
    return tf32 ? RoundToTf32(value) : value;
  }
};

// A tile of rows at a time, so that its part of op(A) stays in a cache; sums in the order of k.
template <class Number>
void RunGemm(const Gemm& gemm, Blend blend, const Elements& a, const Elements& b, float* c) {
  constexpr int64_t kRows = 64;
  const int64_t m = gemm.m, n = gemm.n, k = gemm.k;
  std::vector<Number> tile(static_cast<size_t>(kRows * k));
  std::vector<Number> right(static_cast<size_t>(k * n));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t l = 0; l < k; ++l) right[static_cast<size_t>(l + j * k)] = b(l, j);
  }
  for (int64_t first = 0; first < m; first += kRows) {
    const int64_t rows = std::min(kRows, m - first);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t l = 0; l < k; ++l) tile[static_cast<size_t>(i + l * kRows)] = a(first + i, l);
    }
    for (int64_t j = 0; j < n; ++j) {
      Number sums[kRows] = {};
      const auto add = [&](int64_t from, int64_t to) {
        for (int64_t l = from; l < to; ++l) {
          const Number factor = right[static_cast<size_t>(l + j * k)];
          const Number* const column = &tile[static_cast<size_t>(l * kRows)];
          for (int64_t i = 0; i < kRows; ++i) sums[i] += column[i] * factor;
        }
      };
      const int64_t start = k == 0 ? 0 : static_cast<int64_t>(gemm.seed % static_cast<uint64_t>(k));
      add(start, k);
      add(0, start);
      for (int64_t i = 0; i < rows; ++i) blend(sums[i], &c[first + i + j * gemm.ldc]);
    }
  }
}

void LaunchGemm(const char* api, cublasContext* handle, Gemm gemm, const GemmData& data) {
  const HandleUse use = Use(handle);
  CheckGemm(gemm);
  if (gemm.m == 0 || gemm.n == 0 || gemm.batch == 0) return;
  Operation operation(use.Stream(), api);
  const bool ta = Transposed(gemm.transa), tb = Transposed(gemm.transb);
  const auto* alpha_pointer = static_cast<const float*>(data.alpha);
  const Scalar alpha(operation, *handle, alpha_pointer, "alpha");
  const Scalar beta(operation, *handle, static_cast<const float*>(data.beta), "beta");
  const float *a = nullptr, *b = nullptr;
  if (gemm.k == 0) {
    gemm.stride_a = gemm.stride_b = 0;
  } else {
    a = operation.In(
        data.a, Batch(gemm, ta ? gemm.k : gemm.m, ta ? gemm.m : gemm.k, gemm.lda, gemm.stride_a),
        "A");
    b = operation.In(
        data.b, Batch(gemm, tb ? gemm.n : gemm.k, tb ? gemm.k : gemm.n, gemm.ldb, gemm.stride_b),
        "B");
  }
  Require(gemm.batch == 1 || gemm.stride_c > 0, Fault::kBadParam, "strideC",
          "is 0: the results overlap");
  const TensorView c_view = Batch(gemm, gemm.m, gemm.n, gemm.ldc, gemm.stride_c);
  Require(!c_view.Overlaps(), Fault::kBadParam, "strideC", "makes the results overlap");
  float* c = operation.Out(data.c, c_view, "C");
  UseWorkspace(operation, *handle);
  gemm.seed = OrderSeed(*handle);
  operation.Launch([=] {
    const Blend blend{alpha.Value(), beta.Value()};
    for (int64_t i = 0; i < gemm.batch; ++i) {
      (gemm.seed == 0 ? RunGemm<double>
                      : RunGemm<float>)(gemm, blend,
                                        {a + i * gemm.stride_a, gemm.lda, ta, gemm.tf32},
                                        {b + i * gemm.stride_b, gemm.ldb, tb, gemm.tf32},
                                        c + i * gemm.stride_c);
    }
  });
}

// Whether the handle's math mode lets single precision routines use TF32.
bool MayUseTf32(const cublasContext* handle) {
  if (!IsLive(handle, cublasContext::kKind)) return false;  // refused by LaunchGemm
  const int base =
      static_cast<int>(handle->math) & ~CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  return base == CUBLAS_TF32_TENSOR_OP_MATH && Tf32Enabled();
}

// Elements of op(A) in the order of C, as strides of {column, row}.
TensorView Turned(TensorView matrix, bool transposed) {
  if (!transposed) return matrix;
  return {2, {matrix.dims[1], matrix.dims[0]}, {matrix.strides[1], matrix.strides[0]}};
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                              cublasOperation_t transb, int m, int n, int k, const float* alpha,
                              const float* A, int lda, const float* B, int ldb, const float* beta,
                              float* C, int ldc) {
  static constexpr const char* kApi = "cublasSgemm";
  return CublasCall(kApi, [&] {
    Gemm gemm{transa, transb, m, n, k, lda, ldb, ldc};
    gemm.tf32 = MayUseTf32(handle);
    LaunchGemm(kApi, handle, gemm, {alpha, A, B, beta, C});
  });
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k,
                                         const float* alpha, const float* A, int lda,
                                         long long int strideA, const float* B, int ldb,
                                         long long int strideB, const float* beta, float* C,
                                         int ldc, long long int strideC, int batchCount) {
  static constexpr const char* kApi = "cublasSgemmStridedBatched";
  return CublasCall(kApi, [&] {
    Gemm gemm{transa, transb, m, n, k, lda, ldb, ldc, strideA, strideB, strideC, batchCount};
    gemm.tf32 = MayUseTf32(handle);
    LaunchGemm(kApi, handle, gemm, {alpha, A, B, beta, C});
  });
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void* alpha,
                            const void* A, cudaDataType Atype, int lda, const void* B,
                            cudaDataType Btype, int ldb, const void* beta, void* C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType,
                            cublasGemmAlgo_t algo) {
  static constexpr const char* kApi = "cublasGemmEx";
  return CublasCall(kApi, [&] {
    Require(Atype == CUDA_R_32F && Btype == CUDA_R_32F && Ctype == CUDA_R_32F, Fault::kNotSupported,
            "Atype, Btype or Ctype", "is not CUDA_R_32F");
    Require(computeType == CUBLAS_COMPUTE_32F || computeType == CUBLAS_COMPUTE_32F_PEDANTIC ||
                computeType == CUBLAS_COMPUTE_32F_FAST_TF32,
            Fault::kNotSupported, "computeType", "is not emulated");
    Require(algo == CUBLAS_GEMM_DEFAULT || algo == CUBLAS_GEMM_DEFAULT_TENSOR_OP,
            Fault::kNotSupported, "algo", "is not a default");
    Gemm gemm{transa, transb, m, n, k, lda, ldb, ldc};
    if (computeType == CUBLAS_COMPUTE_32F) gemm.tf32 = MayUseTf32(handle);
    if (computeType == CUBLAS_COMPUTE_32F_FAST_TF32) gemm.tf32 = Tf32Enabled();
    LaunchGemm(kApi, handle, gemm, {alpha, A, B, beta, C});
  });
}

// y = alpha op(A) x + beta y, A of m × n.
cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                              const float* alpha, const float* A, int lda, const float* x, int incx,
                              const float* beta, float* y, int incy) {
  static constexpr const char* kApi = "cublasSgemv";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    RequireOperation(trans, "trans");
    RequireSize(m, "m");
    RequireSize(n, "n");
    RequireLeading(lda, m, "lda");
    const bool transposed = Transposed(trans);
    const TensorView a_view = Matrix(m, n, lda);
    const TensorView x_view = Vector(transposed ? m : n, incx, "incx");
    const TensorView y_view = Vector(transposed ? n : m, incy, "incy");
    if (m == 0 || n == 0) return;
    Operation operation(use.Stream(), kApi);
    const Scalar alpha_value(operation, *handle, alpha, "alpha");
    const Scalar beta_value(operation, *handle, beta, "beta");
    const float* a = operation.In(A, a_view, "A");
    const float* in = operation.In(x, x_view, "x");
    float* out = operation.Out(y, y_view, "y");
    UseWorkspace(operation, *handle);
    operation.Launch([=] {
      const Blend blend{alpha_value.Value(), beta_value.Value()};
      for (int64_t i = 0; i < y_view.dims[0]; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < x_view.dims[0]; ++j) {
          const float element = transposed ? a[j + i * lda] : a[i + j * lda];
          sum += static_cast<double>(element) * in[j * incx];
        }
        blend(sum, &out[i * incy]);
      }
    });
  });
}

// A = alpha x yᵀ + A, A of m × n.
cublasStatus_t cublasSger_v2(cublasHandle_t handle, int m, int n, const float* alpha,
                             const float* x, int incx, const float* y, int incy, float* A,
                             int lda) {
  static constexpr const char* kApi = "cublasSger";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    RequireSize(m, "m");
    RequireSize(n, "n");
    RequireLeading(lda, m, "lda");
    const TensorView x_view = Vector(m, incx, "incx"), y_view = Vector(n, incy, "incy");
    if (m == 0 || n == 0) return;
    Operation operation(use.Stream(), kApi);
    const Scalar alpha_value(operation, *handle, alpha, "alpha");
    const float* left = operation.In(x, x_view, "x");
    const float* right = operation.In(y, y_view, "y");
    float* a = operation.Out(A, Matrix(m, n, lda), "A");
    operation.Launch([=] {
      const Blend blend{alpha_value.Value(), 1};
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < m; ++i) {
          blend(static_cast<double>(left[i * incx]) * right[j * incy], &a[i + j * lda]);
        }
      }
    });
  });
}

// C = alpha op(A) + beta op(B), C of m × n. C may be A (not transposed, lda = ldc), B likewise.
cublasStatus_t cublasSgeam(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, const float* alpha,
                           const float* A, int lda, const float* beta, const float* B, int ldb,
                           float* C, int ldc) {
  static constexpr const char* kApi = "cublasSgeam";
  return CublasCall(kApi, [&] {
    const HandleUse use = Use(handle);
    RequireOperation(transa, "transa");
    RequireOperation(transb, "transb");
    RequireSize(m, "m");
    RequireSize(n, "n");
    const bool ta = Transposed(transa), tb = Transposed(transb);
    RequireLeading(lda, ta ? n : m, "lda");
    RequireLeading(ldb, tb ? n : m, "ldb");
    RequireLeading(ldc, m, "ldc");
    if (m == 0 || n == 0) return;
    Require(A != C || (!ta && lda == ldc), Fault::kBadParam, "C",
            "is A, which is transposed or has another leading dimension");
    Require(B != C || (!tb && ldb == ldc), Fault::kBadParam, "C",
            "is B, which is transposed or has another leading dimension");
    const TensorView a_view = ta ? Matrix(n, m, lda) : Matrix(m, n, lda);
    const TensorView b_view = tb ? Matrix(n, m, ldb) : Matrix(m, n, ldb);
    const TensorView c_view = Matrix(m, n, ldc);
    Operation operation(use.Stream(), kApi);
    const Scalar alpha_value(operation, *handle, alpha, "alpha");
    const Scalar beta_value(operation, *handle, beta, "beta");
    const float* a = operation.In(A, a_view, "A");
    const float* b = operation.In(B, b_view, "B");
    float* c = operation.Out(C, c_view, "C");
    if (A == C) operation.AllowSame(A, C);
    if (B == C) operation.AllowSame(B, C);
    operation.Launch([=] {
      const float a_factor = alpha_value.Value(), b_factor = beta_value.Value();
      const TensorView left = Turned(a_view, ta), right = Turned(b_view, tb);
      ForEachIndex<3>(2, c_view.dims, {left.strides, right.strides, c_view.strides},
                      [&](const int64_t* at) {
                        double sum = 0;
                        if (a_factor != 0) sum += static_cast<double>(a_factor) * a[at[0]];
                        if (b_factor != 0) sum += static_cast<double>(b_factor) * b[at[1]];
                        c[at[2]] = static_cast<float>(sum);
                      });
    });
  });
}

}  // extern "C"
