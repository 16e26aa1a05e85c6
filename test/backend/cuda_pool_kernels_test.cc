#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cuda/kernels.h"
#include "backend/registry.h"
#include "cuda_memory.h"
#include "support/catch.h"

// The pooling kernels against loops that scatter where the kernels gather.

namespace pd::cuda {
namespace {

using test::CudaMemory;
using test::SameBits;

PoolShape Shape(int64_t planes, std::vector<int64_t> in, std::vector<int64_t> kernel,
                std::vector<int64_t> stride, std::vector<int64_t> padding, bool ceil = false) {
  PoolShape shape;
  shape.planes = planes;
  for (size_t d = 0; d < 2; ++d) {
    shape.in[d] = in[d];
    shape.kernel[d] = kernel[d];
    shape.stride[d] = stride[d];
    shape.padding[d] = padding[d];
    const int64_t room = in[d] + 2 * padding[d] - kernel[d] + (ceil ? stride[d] - 1 : 0);
    shape.out[d] = room / stride[d] + 1;
    // A window that would start in the padding behind the image is left out.
    if (ceil && (shape.out[d] - 1) * stride[d] >= in[d] + padding[d]) --shape.out[d];
  }
  return shape;
}

const std::vector<PoolShape> kShapes = {
    Shape(1, {1, 1}, {1, 1}, {1, 1}, {0, 0}),
    Shape(6, {9, 7}, {2, 2}, {2, 2}, {0, 0}),
    Shape(5, {11, 13}, {3, 3}, {2, 2}, {1, 1}),
    Shape(3, {10, 9}, {3, 2}, {2, 3}, {1, 0}, true),
    Shape(2, {13, 12}, {5, 5}, {1, 1}, {2, 2}),    // each pixel in up to 25 windows
    Shape(4, {12, 11}, {2, 3}, {5, 4}, {0, 1}),    // pixels in no window
    Shape(7, {6, 5}, {6, 5}, {1, 1}, {0, 0}),      // global
    Shape(3, {23, 19}, {23, 19}, {1, 1}, {0, 0}),  // a block a window
    Shape(2, {40, 30}, {20, 20}, {7, 9}, {3, 5}, true),
    Shape(9000, {2, 2}, {2, 2}, {1, 1}, {1, 1}),
    Shape(0, {4, 4}, {2, 2}, {2, 2}, {0, 0}),
};

struct Window {
  int64_t begin, end, padded;
};

Window WindowOf(const PoolShape& shape, int d, int64_t p) {
  const int64_t begin = p * shape.stride[d] - shape.padding[d];
  const int64_t end = begin + shape.kernel[d];
  return {std::max<int64_t>(begin, 0), std::min(end, shape.in[d]),
          std::min(end, shape.in[d] + shape.padding[d]) - begin};
}

/// f(output, rows, columns) for each output of a plane in row-major order.
template <typename F>
void ForEachOutput(const PoolShape& shape, F f) {
  for (int64_t p = 0; p < shape.out[0]; ++p) {
    for (int64_t q = 0; q < shape.out[1]; ++q) {
      f(p * shape.out[1] + q, WindowOf(shape, 0, p), WindowOf(shape, 1, q));
    }
  }
}

size_t Pixels(const PoolShape& shape) {
  return static_cast<size_t>(shape.planes * shape.in[0] * shape.in[1]);
}
size_t Outputs(const PoolShape& shape) {
  return static_cast<size_t>(shape.planes * shape.out[0] * shape.out[1]);
}

/// Of `levels` values, so that windows have ties.
std::vector<float> Values(size_t count, unsigned seed, unsigned levels) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(engine() % levels) * 0.37F - 1;
  return values;
}

std::string Describe(const PoolShape& s) {
  return std::to_string(s.planes) + " planes of " + std::to_string(s.in[0]) + "x" +
         std::to_string(s.in[1]) + ", kernel " + std::to_string(s.kernel[0]) + "x" +
         std::to_string(s.kernel[1]);
}

TEST_CASE("cuda: max pooling takes the first of equal ones, and its gradient goes there alone",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  for (const PoolShape& shape : kShapes) {
    INFO(Describe(shape));
    std::vector<float> x = Values(Pixels(shape), 1, 3);
    if (x.size() > 20)
      x[x.size() / 2] = x[x.size() / 2 + 1] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> dy = Values(Outputs(shape), 2, 1000);
    std::vector<float> y(dy.size()), dx(x.size());
    std::vector<int32_t> index(dy.size());
    for (int64_t plane = 0; plane < shape.planes; ++plane) {
      const float* image = x.data() + plane * shape.in[0] * shape.in[1];
      std::vector<double> sum(static_cast<size_t>(shape.in[0] * shape.in[1]));
      ForEachOutput(shape, [&](int64_t output, Window rows, Window columns) {
        int64_t best = rows.begin * shape.in[1] + columns.begin;
        for (int64_t h = rows.begin; h < rows.end; ++h) {
          for (int64_t w = columns.begin; w < columns.end; ++w) {
            const int64_t i = h * shape.in[1] + w;
            if (image[i] > image[best] || std::isnan(image[i])) best = i;
          }
        }
        const auto at = static_cast<size_t>(plane * shape.out[0] * shape.out[1] + output);
        y[at] = image[best];
        index[at] = static_cast<int32_t>(best);
        sum[static_cast<size_t>(best)] += static_cast<double>(dy[at]);
      });
      for (size_t i = 0; i < sum.size(); ++i) {
        dx[static_cast<size_t>(plane) * sum.size() + i] = static_cast<float>(sum[i]);
      }
    }
    auto device_x = memory.Put(x);
    auto device_dy = memory.Put(dy);
    auto device_y = memory.Room<float>(y.size());
    auto device_index = memory.Room<int32_t>(y.size());
    auto device_dx = memory.Room<float>(x.size());
    REQUIRE(LaunchMaxPool(device_x, device_y, device_index, shape, memory.stream()) == cudaSuccess);
    REQUIRE(LaunchMaxPoolBackward(device_dy, device_index, device_dx, shape, memory.stream()) ==
            cudaSuccess);
    CHECK(SameBits(memory.Get(device_y), y));
    CHECK(memory.Get(device_index) == index);
    CHECK(SameBits(memory.Get(device_dx), dx));
  }
}

TEST_CASE("cuda: average pooling divides by the clipped window, with the padding or without",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  for (PoolShape shape : kShapes) {
    for (const bool include : {false, true}) {
      INFO(Describe(shape) << ", count_include_pad " << include);
      shape.count_include_pad = include;
      const std::vector<float> x = Values(Pixels(shape), 3, 1000);
      const std::vector<float> dy = Values(Outputs(shape), 4, 1000);
      std::vector<double> y(dy.size()), dx(x.size());
      for (int64_t plane = 0; plane < shape.planes; ++plane) {
        const int64_t image = plane * shape.in[0] * shape.in[1];
        ForEachOutput(shape, [&](int64_t output, Window rows, Window columns) {
          const int64_t counted = include ? rows.padded * columns.padded
                                          : (rows.end - rows.begin) * (columns.end - columns.begin);
          const auto at = static_cast<size_t>(plane * shape.out[0] * shape.out[1] + output);
          for (int64_t h = rows.begin; h < rows.end; ++h) {
            for (int64_t w = columns.begin; w < columns.end; ++w) {
              const auto i = static_cast<size_t>(image + h * shape.in[1] + w);
              y[at] += static_cast<double>(x[i]) / static_cast<double>(counted);
              dx[i] += static_cast<double>(dy[at]) / static_cast<double>(counted);
            }
          }
        });
      }
      auto device_x = memory.Put(x);
      auto device_dy = memory.Put(dy);
      auto device_y = memory.Room<float>(y.size());
      auto device_dx = memory.Room<float>(x.size());
      REQUIRE(LaunchAveragePool(device_x, device_y, shape, memory.stream()) == cudaSuccess);
      REQUIRE(LaunchAveragePoolBackward(device_dy, device_dx, shape, memory.stream()) ==
              cudaSuccess);
      const std::vector<float> got = memory.Get(device_y);
      const std::vector<float> gradient = memory.Get(device_dx);
      for (size_t i = 0; i < y.size(); ++i) {
        REQUIRE(got[i] == Approx(y[i]).epsilon(1e-6).margin(1e-5));
      }
      for (size_t i = 0; i < dx.size(); ++i) {
        REQUIRE(gradient[i] == Approx(dx[i]).epsilon(1e-6).margin(1e-5));
      }
    }
  }
}

TEST_CASE("cuda: pooling refuses what its integers cannot hold", "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  PoolShape shape = kShapes[1];
  auto x = memory.Room<float>(Pixels(shape));
  auto y = memory.Room<float>(Outputs(shape));
  shape.padding[0] = int64_t{1} << 40;
  CHECK(LaunchAveragePool(x, y, shape, memory.stream()) == cudaErrorInvalidValue);
}

}  // namespace
}  // namespace pd::cuda
