#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cuda/kernels.h"
#include "backend/registry.h"
#include "cuda_memory.h"
#include "support/catch.h"

// The kernels of embeddings, layer norm, gelu and attention, and the strided copy, against plain
// loops in double.

namespace pd::cuda {
namespace {

using test::CheckNear;
using test::CudaMemory;
using test::RandomFloats;
using test::SameBits;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- Embedding

TEST_CASE("cuda: an embedding copies rows of its weight, and sums into its gradient in order",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  for (const EmbeddingShape s :
       {EmbeddingShape{1, 1, 1}, EmbeddingShape{7, 3, 5}, EmbeddingShape{1000, 11, 33},
        EmbeddingShape{300, 5000, 3}, EmbeddingShape{64, 1, 300}, EmbeddingShape{0, 4, 3}}) {
    INFO(s.count << " indices of " << s.rows << " rows of " << s.dim);
    const auto count = static_cast<size_t>(s.count), dim = static_cast<size_t>(s.dim);
    const std::vector<float> weight = RandomFloats(static_cast<size_t>(s.rows) * dim, 1);
    const std::vector<float> dy = RandomFloats(count * dim, 2);
    std::mt19937 engine(3);
    std::vector<int32_t> index(count);
    for (int32_t& i : index) i = static_cast<int32_t>(engine() % static_cast<uint64_t>(s.rows));
    std::vector<float> expected;
    std::vector<double> sums(weight.size());
    for (size_t i = 0; i < count; ++i) {
      for (size_t d = 0; d < dim; ++d) {
        expected.push_back(weight[static_cast<size_t>(index[i]) * dim + d]);
        sums[static_cast<size_t>(index[i]) * dim + d] += static_cast<double>(dy[i * dim + d]);
      }
    }
    auto device_weight = memory.Put(weight);
    auto device_index = memory.Put(index);
    auto device_dy = memory.Put(dy);
    auto y = memory.Room<float>(dy.size());
    auto dweight = memory.Room<float>(weight.size());
    auto links = memory.Room<int32_t>(2 * count);
    REQUIRE(LaunchEmbedding(device_weight, device_index, y, s, memory.stream()) == cudaSuccess);
    REQUIRE(LaunchEmbeddingGradient(device_index, device_dy, dweight, links, s, memory.stream()) ==
            cudaSuccess);
    CHECK(SameBits(memory.Get(y), expected));
    // The order and the rounding are fixed, so the bits are.
    CHECK(SameBits(memory.Get(dweight), std::vector<float>(sums.begin(), sums.end())));
    memory.Get(links);
  }
}

TEST_CASE("cuda: an index without a row gives a row of NaN and no gradient", "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  const EmbeddingShape shape = {6, 2, 1};
  auto index = memory.Put<int32_t>(
      {-1, 1, 2, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(), 1});
  auto weight = memory.Put<float>({3, 4});
  auto dy = memory.Put<float>({kNan, 10, kNan, kNan, kNan, 20});
  auto y = memory.Room<float>(6);
  auto dweight = memory.Room<float>(2);
  auto links = memory.Room<int32_t>(12);
  REQUIRE(LaunchEmbedding(weight, index, y, shape, memory.stream()) == cudaSuccess);
  REQUIRE(LaunchEmbeddingGradient(index, dy, dweight, links, shape, memory.stream()) ==
          cudaSuccess);
  const std::vector<float> rows = memory.Get(y);
  for (const size_t bad : {0, 2, 3, 4}) CHECK(std::isnan(rows[bad]));
  for (const size_t good : {1, 5}) CHECK(rows[good] == 4);
  CHECK(memory.Get(dweight) == std::vector<float>{0, 30});
}

// ---- Layer norm

struct NormResult {
  std::vector<float> y, dx, dweight;
};

NormResult RunLayerNorm(RowShape shape, const std::vector<float>& x, const std::vector<float>& w,
                        const std::vector<float>& b, const std::vector<float>& dy, double eps) {
  CudaMemory memory;
  auto device_x = memory.Put(x);
  auto weight = memory.Put(w);
  auto bias = memory.Put(b);
  auto device_dy = memory.Put(dy);
  auto y = memory.Room<float>(x.size());
  auto dx = memory.Room<float>(x.size());
  auto dweight = memory.Room<float>(w.size());
  auto statistics = memory.Room<double>(2 * static_cast<size_t>(shape.rows));
  const cudaStream_t stream = memory.stream();
  REQUIRE(LaunchLayerNorm(device_x, weight, bias, y, statistics, shape, eps, stream) ==
          cudaSuccess);
  REQUIRE(LaunchLayerNormBackward(device_x, weight, statistics, device_dy, dx, shape, stream) ==
          cudaSuccess);
  REQUIRE(LaunchLayerNormGradient(device_x, statistics, device_dy, dweight, shape, stream) ==
          cudaSuccess);
  return {memory.Get(y), memory.Get(dx), memory.Get(dweight)};
}

TEST_CASE("cuda: layer norm and its gradients, in the same bits each time", "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  for (const RowShape s : {RowShape{1, 1}, RowShape{3, 5}, RowShape{37, 33}, RowShape{300, 64},
                           RowShape{2, 1031}, RowShape{0, 4}}) {
    INFO(s.rows << " rows of " << s.width);
    const auto rows = static_cast<size_t>(s.rows), width = static_cast<size_t>(s.width);
    const double eps = 1e-3;
    // Far from zero: a mean in float would cost digits.
    const std::vector<float> x = RandomFloats(rows * width, 4, 1, 100);
    const std::vector<float> w = RandomFloats(width, 5), b = RandomFloats(width, 6);
    const std::vector<float> dy = RandomFloats(rows * width, 7);
    std::vector<double> y(x.size()), dx(x.size()), dweight(width);
    for (size_t r = 0; r < rows; ++r) {
      const auto at = [&](const std::vector<float>& from, size_t i) {
        return static_cast<double>(from[r * width + i]);
      };
      const auto mean_of = [&](auto term) {
        double sum = 0;
        for (size_t i = 0; i < width; ++i) sum += term(i);
        return sum / static_cast<double>(width);
      };
      const double mean = mean_of([&](size_t i) { return at(x, i); });
      const double variance = mean_of([&](size_t i) { return std::pow(at(x, i) - mean, 2); });
      const auto z = [&](size_t i) { return (at(x, i) - mean) / std::sqrt(variance + eps); };
      const auto g = [&](size_t i) { return at(dy, i) * static_cast<double>(w[i]); };
      const double mean_g = mean_of(g);
      const double mean_gz = mean_of([&](size_t i) { return g(i) * z(i); });
      for (size_t i = 0; i < width; ++i) {
        y[r * width + i] = z(i) * static_cast<double>(w[i]) + static_cast<double>(b[i]);
        dx[r * width + i] = (g(i) - mean_g - z(i) * mean_gz) / std::sqrt(variance + eps);
        dweight[i] += at(dy, i) * z(i);
      }
    }
    const NormResult result = RunLayerNorm(s, x, w, b, dy, eps);
    CheckNear(result.y, y, 5e-7);
    CheckNear(result.dx, dx, 5e-7);
    CheckNear(result.dweight, dweight, 5e-7);
    const NormResult again = RunLayerNorm(s, x, w, b, dy, eps);
    CHECK(SameBits(again.dx, result.dx));
    CHECK(SameBits(again.dweight, result.dweight));
  }
}

// ---- Gelu

TEST_CASE("cuda: gelu and its gradient, NaN and large values included", "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  std::vector<float> x = RandomFloats(1003, 8, 9);
  x[0] = kNan;
  x[1] = 1000;
  x[2] = -1000;
  const std::vector<float> dy = RandomFloats(x.size(), 9);
  for (const bool tanh : {false, true}) {
    INFO("tanh " << tanh);
    auto device_x = memory.Put(x);
    auto device_dy = memory.Put(dy);
    auto y = memory.Room<float>(x.size());
    auto dx = memory.Room<float>(x.size());
    REQUIRE(LaunchGelu(tanh, device_x, y, x.size(), memory.stream()) == cudaSuccess);
    REQUIRE(LaunchGeluBackward(tanh, device_x, device_dy, dx, x.size(), memory.stream()) ==
            cudaSuccess);
    const std::vector<float> got = memory.Get(y), gradient = memory.Get(dx);
    CHECK(std::isnan(got[0]));
    CHECK(std::isnan(gradient[0]));
    const auto gelu = [tanh](double v) {
      return tanh ? v * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)))
                  : v * 0.5 * std::erfc(-v / std::sqrt(2.0));
    };
    for (size_t i = 1; i < x.size(); ++i) {
      const double v = x[i], step = 1e-5;
      const double slope = (gelu(v + step) - gelu(v - step)) / (2 * step);
      REQUIRE(got[i] == Approx(gelu(v)).epsilon(1e-6).margin(1e-6));
      REQUIRE(gradient[i] == Approx(slope * static_cast<double>(dy[i])).epsilon(2e-6).margin(2e-6));
    }
    if (!tanh) {  // exact, also where Φ(x) is far below the spacing of floats at 1
      auto far = memory.Put<float>({-9});
      auto small = memory.Room<float>(1);
      REQUIRE(LaunchGelu(tanh, far, small, 1, memory.stream()) == cudaSuccess);
      CHECK(memory.Get(small)[0] == Approx(gelu(-9)).epsilon(1e-4));
    }
  }
}

// ---- Attention's softmax

TEST_CASE("cuda: a row of scores becomes its softmax over what it sees, and back",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  for (const int64_t steps : {1, 2, 33, 257, 300}) {
    for (const bool causal : {false, true}) {
      INFO(steps << " steps, causal " << causal);
      const ScoreShape shape = {3, steps, causal};
      const auto width = static_cast<size_t>(steps), rows = 3 * width;
      std::vector<float> scores = RandomFloats(rows * width, 10, 90);
      const std::vector<float> dp = RandomFloats(rows * width, 11);
      const double scale = 0.25;
      std::vector<double> p(scores.size()), ds(scores.size());
      for (size_t r = 0; r < rows; ++r) {
        const size_t seen = causal ? r % width + 1 : width;
        float* row = &scores[r * width];
        const double largest = *std::max_element(row, row + seen);
        double sum = 0, mean = 0;
        for (size_t c = 0; c < seen; ++c) sum += std::exp(row[c] - largest);
        for (size_t c = 0; c < seen; ++c) {
          p[r * width + c] = std::exp(row[c] - largest) / sum;
          mean += p[r * width + c] * static_cast<double>(dp[r * width + c]);
        }
        for (size_t c = 0; c < seen; ++c) {
          const size_t i = r * width + c;
          ds[i] = scale * p[i] * (static_cast<double>(dp[i]) - mean);
        }
        // What a row does not see is not read.
        std::fill(row + seen, row + width, kNan);
      }
      auto device_p = memory.Put(scores);
      auto device_d = memory.Put(dp);
      REQUIRE(LaunchScoreSoftmax(device_p, shape, memory.stream()) == cudaSuccess);
      REQUIRE(LaunchScoreSoftmaxBackward(device_p, device_d, shape, 0.25F, memory.stream()) ==
              cudaSuccess);
      CheckNear(memory.Get(device_p), p, 1e-6);
      // Where one score is all, ds is the small difference of values of up to scale·1.
      const std::vector<float> d = memory.Get(device_d);
      for (size_t i = 0; i < d.size(); ++i) REQUIRE(d[i] == Approx(ds[i]).margin(1e-7));
    }
  }
}

TEST_CASE("cuda: a NaN that a row of scores sees is in all it sees, and in no other row",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  auto scores = memory.Put<float>({1, kNan, 2, kNan});
  REQUIRE(LaunchScoreSoftmax(scores, {1, 2, true}, memory.stream()) == cudaSuccess);
  const std::vector<float> p = memory.Get(scores);
  CHECK(p[0] == 1);
  CHECK(p[1] == 0);
  CHECK(std::isnan(p[2]));
  CHECK(std::isnan(p[3]));
}

// ---- Strided copy

StridedShape Strided(const std::vector<int64_t>& dims, const std::vector<int64_t>& from,
                     const std::vector<int64_t>& to) {
  StridedShape shape;
  shape.rank = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), shape.dims);
  std::copy(from.begin(), from.end(), shape.from);
  std::copy(to.begin(), to.end(), shape.to);
  return shape;
}

TEST_CASE("cuda: a strided copy moves each element to its place, and nothing beside them",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  const std::vector<StridedShape> shapes = {
      Strided({}, {}, {}),
      Strided({1, 1}, {7, 3}, {1, 1}),
      Strided({1000}, {1}, {1}),
      Strided({5, 7}, {7, 1}, {1, 5}),      // transposed
      Strided({45, 70}, {70, 1}, {1, 45}),  // by tiles
      Strided({70, 45}, {1, 70}, {48, 1}),  // with gaps
      Strided({3, 33, 2, 16, 5}, {5280, 160, 80, 1, 16}, {5280, 1, 2640, 165, 33}),
      Strided({3, 5, 7}, {35, 7, 1}, {48, 8, 1}),  // with gaps
      Strided({3, 1, 5, 7}, {35, 2, 7, 1}, {35, 9, 7, 1}),
      Strided({2, 3, 4, 5}, {60, 5, 15, 1}, {60, 20, 5, 1}),
      Strided({2, 3, 2, 2, 3, 2, 2, 2, 3}, {1, 2, 6, 12, 24, 72, 144, 288, 576},
              {864, 288, 144, 72, 24, 12, 6, 3, 1}),
      Strided({2097152 + 5, 2}, {2, 1}, {1, 2097152 + 5}),  // more than one pass of the grid
      Strided({4, 0, 3}, {3, 3, 1}, {3, 3, 1}),
  };
  for (const StridedShape& shape : shapes) {
    int64_t count = 1, from_last = 0, to_last = 0;
    for (int d = 0; d < shape.rank; ++d) {
      count *= shape.dims[d];
      from_last += (shape.dims[d] - 1) * shape.from[d];
      to_last += (shape.dims[d] - 1) * shape.to[d];
    }
    INFO("rank " << shape.rank << ", " << count << " elements");
    const std::vector<float> from =
        RandomFloats(static_cast<size_t>(std::max<int64_t>(from_last, 0) + 1), 12);
    std::vector<float> expected =
        RandomFloats(static_cast<size_t>(std::max<int64_t>(to_last, 0) + 1), 13);
    auto device_from = memory.Put(from);
    auto to = memory.Put(expected);
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i, source = 0, target = 0;
      for (int d = shape.rank - 1; d >= 0; --d) {
        source += rest % shape.dims[d] * shape.from[d];
        target += rest % shape.dims[d] * shape.to[d];
        rest /= shape.dims[d];
      }
      expected[static_cast<size_t>(target)] = from[static_cast<size_t>(source)];
    }
    REQUIRE(LaunchStridedCopy(to, device_from, shape, memory.stream()) == cudaSuccess);
    CHECK(SameBits(memory.Get(to), expected));
  }
}

}  // namespace
}  // namespace pd::cuda
