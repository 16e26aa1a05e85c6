#include <cuda_runtime_api.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cuda/kernels.h"
#include "backend/elementwise.h"
#include "backend/registry.h"
#include "base/random.h"
#include "cuda_memory.h"
#include "support/catch.h"

// Our own kernels against plain loops: bit for bit where kernels.h says so.

namespace pd::cuda {
namespace {

using test::CheckNear;
using test::CudaMemory;
using test::RandomFloats;
using test::SameBits;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Around the sizes of vectors, warps and blocks; the last is more than one pass of the grid.
const std::vector<size_t> kCounts = {0, 1, 3, 4, 31, 33, 255, 256, 257, 1000, 50021, 2097152 + 3};

TEST_CASE("cuda: sums are the host's bit for bit", "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  for (const size_t count : kCounts) {
    INFO(count << " elements");
    const std::vector<float> a = RandomFloats(count, 1);
    const std::vector<float> x = RandomFloats(count, 2, 1e-3F);
    std::vector<float> expected = a;
    AccumulateHost(expected.data(), x.data(), count);
    auto acc = memory.Put(a);
    auto device_x = memory.Put(x);
    auto sum = memory.Room<float>(count);
    REQUIRE(LaunchSum(sum, acc, device_x, count, memory.stream()) == cudaSuccess);
    REQUIRE(LaunchAccumulate(acc, device_x, count, memory.stream()) == cudaSuccess);
    CHECK(SameBits(memory.Get(sum), expected));
    CHECK(SameBits(memory.Get(acc), expected));
    CHECK(SameBits(memory.Get(device_x), x));
  }
}

TEST_CASE("cuda: a step of Sgd is the host's bit for bit, in place or not", "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  for (const size_t count : {size_t{0}, size_t{1}, size_t{257}, size_t{50021}}) {
    for (const float momentum : {0.0F, 0.9F}) {
      for (const float decay : {0.0F, 5e-4F}) {
        for (const bool in_place : {false, true}) {
          INFO(count << " elements, momentum " << momentum << ", decay " << decay);
          const std::vector<float> w = RandomFloats(count, 3);
          const std::vector<float> g = RandomFloats(count, 4);
          std::vector<float> m = RandomFloats(count, 5);
          auto device_w = memory.Put(w);
          auto device_g = memory.Put(g);
          auto device_m = memory.Put(m);
          auto fresh = memory.Room<float>(count);
          auto& out = in_place ? device_w : fresh;
          REQUIRE(LaunchSgd(device_w, device_g, momentum == 0 ? nullptr : device_m.data(), out,
                            count, {.lr = 0.01F, .momentum = momentum, .weight_decay = decay},
                            memory.stream()) == cudaSuccess);
          std::vector<float> expected(count);
          SgdArgs args{.w = w.data(),
                       .g = g.data(),
                       .m = m.data(),
                       .w_out = expected.data(),
                       .count = count};
          args.lr = 0.01F;
          args.momentum = static_cast<double>(momentum);
          args.weight_decay = static_cast<double>(decay);
          SgdHostF32(args);
          CHECK(SameBits(memory.Get(out), expected));
          CHECK(SameBits(memory.Get(device_m), m));
        }
      }
    }
  }
}

TEST_CASE("cuda: Sgd without decay or momentum does not touch what it leaves out",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  auto w = memory.Put<float>({kInfinity});
  auto g = memory.Put<float>({1});
  auto out = memory.Room<float>(1);
  REQUIRE(LaunchSgd(w, g, nullptr, out, 1, {.lr = 1}, memory.stream()) == cudaSuccess);
  CHECK(memory.Get(out)[0] == kInfinity);  // 0·∞ would be NaN
}

TEST_CASE("cuda: dropout keeps what DropoutKeeps keeps, divided as on the host",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  for (const size_t count : kCounts) {
    for (const float p : {0.0F, 0.3F, 0.999F}) {
      INFO(count << " elements, p " << p);
      const uint64_t key = 0x0123456789abcdefULL;
      const uint64_t minibatch = 0x100000007ULL;
      const std::vector<float> x = RandomFloats(count, 6);
      auto device_x = memory.Put(x);
      auto y = memory.Room<float>(count);
      REQUIRE(LaunchDropout(device_x, y, count, key, minibatch, p, memory.stream()) == cudaSuccess);
      std::vector<float> expected(count);
      for (size_t i = 0; i < count; ++i) {
        expected[i] = DropoutKeeps(key, minibatch, i, p) ? x[i] / (1 - p) : 0;
      }
      CHECK(SameBits(memory.Get(y), expected));
    }
  }
}

TEST_CASE("cuda: activations and their gradients, NaN and large values included",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  std::vector<float> x = RandomFloats(1003, 7, 6);
  x[0] = kNan;
  x[1] = -0.0F;
  x[2] = 1000;
  x[3] = -1000;
  const std::vector<float> dy = RandomFloats(x.size(), 8);
  for (const auto kind : {ActivationKind::kRelu, ActivationKind::kTanh, ActivationKind::kSigmoid}) {
    INFO("kind " << static_cast<int>(kind));
    auto device_x = memory.Put(x);
    auto device_dy = memory.Put(dy);
    auto y = memory.Room<float>(x.size());
    auto dx = memory.Room<float>(x.size());
    REQUIRE(LaunchActivation(kind, device_x, y, x.size(), memory.stream()) == cudaSuccess);
    REQUIRE(LaunchActivationBackward(kind, y, device_dy, dx, x.size(), memory.stream()) ==
            cudaSuccess);
    const std::vector<float> got = memory.Get(y);
    const std::vector<float> gradient = memory.Get(dx);
    CHECK(std::isnan(got[0]));
    for (size_t i = 1; i < x.size(); ++i) {
      const double value = x[i];
      double want = value <= 0 ? 0 : value;
      double slope = value <= 0 ? 0 : 1;
      if (kind == ActivationKind::kTanh) {
        want = std::tanh(value);
        slope = 1 - want * want;
      } else if (kind == ActivationKind::kSigmoid) {
        want = 1 / (1 + std::exp(-value));
        slope = want * (1 - want);
      }
      REQUIRE(got[i] == Approx(want).epsilon(5e-7).margin(1e-38));
      REQUIRE(gradient[i] == Approx(slope * static_cast<double>(dy[i])).epsilon(1e-6).margin(3e-7));
    }
  }
}

TEST_CASE("cuda: rows are copied into a wider tensor and out of it, and nothing beside them",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  struct Case {
    int64_t rows, width, offset, stride;
  };
  for (const Case c : {Case{1, 1, 0, 1}, Case{7, 17, 3, 29}, Case{3, 1000, 500, 2048},
                       Case{2097152 + 5, 1, 1, 2}, Case{5, 0, 1, 2}, Case{0, 5, 1, 9}}) {
    INFO(c.rows << " rows of " << c.width);
    const std::vector<float> block = RandomFloats(static_cast<size_t>(c.rows * c.width), 9);
    const std::vector<float> wide = RandomFloats(static_cast<size_t>(c.rows * c.stride), 10);
    auto device_block = memory.Put(block);
    auto device_wide = memory.Put(wide);
    auto back = memory.Room<float>(block.size());
    REQUIRE(LaunchCopyRows(device_wide.data() + c.offset, c.stride, device_block, c.width, c.width,
                           c.rows, memory.stream()) == cudaSuccess);
    REQUIRE(LaunchCopyRows(back, c.width, device_wide.data() + c.offset, c.stride, c.width, c.rows,
                           memory.stream()) == cudaSuccess);
    std::vector<float> expected = wide;
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t i = 0; i < c.width; ++i) {
        expected[static_cast<size_t>(r * c.stride + c.offset + i)] =
            block[static_cast<size_t>(r * c.width + i)];
      }
    }
    CHECK(SameBits(memory.Get(device_wide), expected));
    CHECK(SameBits(memory.Get(back), block));
  }
}

TEST_CASE("cuda: biases are added to their channels; their gradients are the channels' sums",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  for (const ChannelShape s :
       {ChannelShape{1, 1, 1}, ChannelShape{3, 5, 7}, ChannelShape{37, 67, 1},
        ChannelShape{300, 3, 1}, ChannelShape{2, 3, 4099}, ChannelShape{1030, 2, 3},
        ChannelShape{65, 33, 9}, ChannelShape{0, 4, 9}, ChannelShape{0, 4, 1},
        ChannelShape{4, 0, 1}}) {
    INFO("[" << s.outer << "," << s.channels << "," << s.inner << "]");
    const auto count = static_cast<size_t>(s.outer * s.channels * s.inner);
    const std::vector<float> y = RandomFloats(count, 11);
    const std::vector<float> bias = RandomFloats(static_cast<size_t>(s.channels), 12);
    std::vector<float> expected = y;
    std::vector<double> sums(bias.size());
    for (size_t i = 0; i < count; ++i) {
      const size_t c = i / static_cast<size_t>(s.inner) % bias.size();
      expected[i] = y[i] + bias[c];
      sums[c] += static_cast<double>(expected[i]);
    }
    auto device_y = memory.Put(y);
    auto device_bias = memory.Put(bias);
    auto dbias = memory.Room<float>(bias.size());
    auto again = memory.Room<float>(bias.size());
    REQUIRE(LaunchAddBias(device_y, device_bias, s, memory.stream()) == cudaSuccess);
    REQUIRE(LaunchBiasGradient(device_y, dbias, s, memory.stream()) == cudaSuccess);
    REQUIRE(LaunchBiasGradient(device_y, again, s, memory.stream()) == cudaSuccess);
    CHECK(SameBits(memory.Get(device_y), expected));
    CheckNear(memory.Get(dbias), sums, 1e-7);
    CHECK(SameBits(memory.Get(again), memory.Get(dbias)));
  }
}

TEST_CASE("cuda: batch norm of one value a channel gives the bias, and keeps a NaN",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  auto x = memory.Put<float>({3, kNan, -1e30F});
  auto weight = memory.Put<float>({2, 2, 2});
  auto bias = memory.Put<float>({0.5F, 0.5F, -1});
  auto mean = memory.Put<float>({1, 1, 0});
  auto variance = memory.Put<float>({4, 4, 4});
  auto y = memory.Room<float>(3);
  REQUIRE(LaunchBatchNormOfOne(x, weight, bias, y, mean, variance, 0.25, 3, memory.stream()) ==
          cudaSuccess);
  CHECK(memory.Get(y)[0] == 0.5F);
  CHECK(std::isnan(memory.Get(y)[1]));
  CHECK(memory.Get(y)[2] == -1);
  CHECK(memory.Get(mean)[0] == 0.75F + 0.75F);
  CHECK(memory.Get(mean)[2] == -0.25e30F);
  CHECK(memory.Get(variance)[0] == 3);
}

// ---- Loss

struct LossResult {
  std::vector<float> probability, loss, counted, right, top5, dlogits;
};

LossResult RunLoss(const std::vector<float>& logits, const std::vector<int32_t>& label, float scale,
                   size_t targets = 1) {
  CudaMemory memory;
  const size_t samples = label.size() / targets;
  const LossShape shape = {
      .samples = static_cast<int64_t>(samples),
      .targets = static_cast<int64_t>(targets),
      .classes = static_cast<int64_t>(samples == 0 ? 5 : logits.size() / label.size())};
  auto device_logits = memory.Put(logits);
  auto device_label = memory.Put(label);
  auto probability = memory.Room<float>(logits.size());
  auto rows = memory.Room<float>(kLossColumns * label.size());
  auto y = memory.Room<float>(kLossColumns * samples);
  auto dlogits = memory.Room<float>(logits.size());
  REQUIRE(LaunchSoftmaxCrossEntropy(device_logits, device_label, probability, rows, y, shape,
                                    memory.stream()) == cudaSuccess);
  REQUIRE(LaunchSoftmaxCrossEntropyBackward(probability, device_label, dlogits, shape, scale,
                                            memory.stream()) == cudaSuccess);
  LossResult result = {memory.Get(probability), {}, {}, {}, {}, memory.Get(dlogits)};
  const std::vector<float> columns = memory.Get(y);
  for (size_t n = 0; n < samples; ++n) {
    result.loss.push_back(columns[kLossColumns * n + kLossSum]);
    result.counted.push_back(columns[kLossColumns * n + kLossCounted]);
    result.right.push_back(columns[kLossColumns * n + kLossRight]);
    result.top5.push_back(columns[kLossColumns * n + kLossTop5]);
  }
  return result;
}

TEST_CASE("cuda: the loss, its flags and its gradient are softmax cross-entropy's",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  for (const size_t classes : {1, 2, 10, 257, 1000}) {
    for (const float spread : {0.1F, 5.0F, 1000.0F}) {
      INFO(classes << " classes, spread " << spread);
      const size_t samples = 9;
      const std::vector<float> logits = RandomFloats(samples * classes, 13, spread);
      std::vector<int32_t> label(samples);
      std::vector<double> loss(samples), gradient(logits.size());
      std::vector<float> right(samples), top5(samples);
      for (size_t n = 0; n < samples; ++n) {
        const float* x = &logits[n * classes];
        const auto first = static_cast<size_t>(std::max_element(x, x + classes) - x);
        // Every other sample is right.
        label[n] = static_cast<int32_t>(n % 2 == 0 ? first : (first + 1) % classes);
        right[n] = static_cast<size_t>(label[n]) == first ? 1.0F : 0.0F;
        const float own = x[label[n]];
        const auto larger = std::count_if(x, x + classes, [own](float v) { return v > own; }) +
                            std::count(x, x + label[n], own);
        top5[n] = larger < 5 ? 1.0F : 0.0F;
        double sum = 0;
        for (size_t c = 0; c < classes; ++c) sum += std::exp(double{x[c]} - double{x[first]});
        loss[n] = std::log(sum) + double{x[first]} - double{x[label[n]]};
        for (size_t c = 0; c < classes; ++c) {
          const double probability = std::exp(double{x[c]} - double{x[first]}) / sum;
          gradient[n * classes + c] =
              0.25 * (probability - (static_cast<int32_t>(c) == label[n] ? 1 : 0));
        }
      }
      const LossResult result = RunLoss(logits, label, 0.25F);
      CheckNear(result.loss, loss, 1e-6);
      CheckNear(result.dlogits, gradient, 1e-6);
      CHECK(SameBits(result.right, right));
      CHECK(SameBits(result.top5, top5));
      CHECK(SameBits(result.counted, std::vector<float>(samples, 1)));
      CHECK(SameBits(RunLoss(logits, label, 0.25F).dlogits, result.dlogits));
    }
  }
  CHECK(RunLoss({}, {}, 1).loss.empty());
}

TEST_CASE("cuda: a sample's columns are the sums of its targets', ignored ones left out",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  for (const size_t targets : {2, 7, 300}) {
    INFO(targets << " targets a sample");
    const size_t samples = 3, classes = 11, rows = samples * targets;
    const std::vector<float> logits = RandomFloats(rows * classes, 17, 3);
    std::vector<int32_t> label(rows);
    for (size_t i = 0; i < rows; ++i) label[i] = static_cast<int32_t>(i * i % classes);
    const LossResult each = RunLoss(logits, label, 0.5F);
    for (size_t i = 0; i < rows; i += 3) label[i] = kIgnoredTarget;
    for (size_t i = 2 * targets; i < rows; ++i) label[i] = kIgnoredTarget;
    std::vector<double> loss(samples), counted(samples), right(samples), top5(samples);
    std::vector<float> dlogits = each.dlogits;
    for (size_t i = 0; i < rows; ++i) {
      if (label[i] == kIgnoredTarget) {
        std::fill_n(&dlogits[i * classes], classes, 0.0F);
        continue;
      }
      loss[i / targets] += each.loss[i];
      counted[i / targets] += 1;
      right[i / targets] += each.right[i];
      top5[i / targets] += each.top5[i];
    }
    const LossResult result = RunLoss(logits, label, 0.5F, targets);
    CheckNear(result.loss, loss, 1e-6);
    CheckNear(result.counted, counted, 0);
    CheckNear(result.right, right, 0);
    CheckNear(result.top5, top5, 0);
    CHECK(SameBits(result.dlogits, dlogits));
    CHECK(counted[2] == 0);
  }
}

TEST_CASE("cuda: of equal logits the first is the prediction", "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  const size_t classes = 300;
  std::vector<float> logits(4 * classes, 1.0F);
  for (const size_t tie : {37, 290}) logits[classes + tie] = 2;
  for (const size_t tie : {299, 5, 6}) logits[2 * classes + tie] = 3;
  for (size_t c = 0; c < classes; ++c) logits[3 * classes + c] = -kInfinity;
  CHECK(RunLoss(logits, {0, 37, 5, 0}, 1).right == std::vector<float>{1, 1, 1, 1});
  CHECK(RunLoss(logits, {1, 290, 6, 1}, 1).right == std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("cuda: a confident loss keeps its digits", "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  // log(1 + e^-20) = e^-20, far below the spacing of floats at 1.
  const LossResult result = RunLoss({20, 0}, {0}, 1);
  CHECK(result.loss[0] == Approx(std::exp(-20.0)).epsilon(1e-5));
}

TEST_CASE("cuda: a NaN among the logits is in the loss; the prediction is std::max_element's",
          "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  const LossResult result = RunLoss({1, kNan, 3, kNan, 5, 6}, {2, 0}, 1);
  CHECK(std::isnan(result.loss[0]));
  CHECK(std::isnan(result.loss[1]));
  CHECK(result.right == std::vector<float>{1, 1});
}

TEST_CASE("cuda: a label that is no class makes its sample NaN, and no other", "[cuda][kernels]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  const LossResult result = RunLoss({1, 2, 1, 2, 1, 2}, {-1, 1, 2}, 1);
  for (const size_t bad : {0, 2}) {
    CHECK(std::isnan(result.loss[bad]));
    CHECK(std::isnan(result.dlogits[2 * bad]));
    CHECK(result.right[bad] == 0);
  }
  CHECK(result.loss[1] == Approx(std::log1p(std::exp(-1.0))));
  CHECK(result.right[1] == 1);
}

// ---- Sizes past 2^31: 17 GB of the device, asked for by name.

TEST_CASE("cuda: more elements than an int counts", "[.large]") {
  if (!WhyNoCuda().empty()) return;  // backend_test.cc says why
  CudaMemory memory;
  const size_t count = (size_t{1} << 31) + 7;
  float* acc = nullptr;
  float* x = nullptr;
  if (cudaMalloc(reinterpret_cast<void**>(&acc), count * sizeof(float)) != cudaSuccess ||
      cudaMalloc(reinterpret_cast<void**>(&x), count * sizeof(float)) != cudaSuccess) {
    cudaGetLastError();  // or the next launch would seem to have failed
    cudaFree(acc);
    WARN("SKIPPED: 17 GB of device memory are not to be had");
    return;
  }
  REQUIRE(cudaMemsetAsync(acc, 0, count * sizeof(float), memory.stream()) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(x, 0x3f, count * sizeof(float), memory.stream()) == cudaSuccess);
  REQUIRE(LaunchAccumulate(acc, x, count, memory.stream()) == cudaSuccess);
  REQUIRE(LaunchDropout(acc, x, count, 1, 2, 0.5F, memory.stream()) == cudaSuccess);
  const std::vector<float> sums = memory.Read(acc + count - 9, 9);
  const std::vector<float> dropped = memory.Read(x + count - 9, 9);
  float expected = 0;
  std::memset(&expected, 0x3f, sizeof(expected));
  for (size_t i = 0; i < 9; ++i) {
    CHECK(sums[i] == expected);
    CHECK(dropped[i] == (DropoutKeeps(1, 2, count - 9 + i, 0.5F) ? expected / 0.5F : 0));
  }
  CHECK(cudaFree(acc) == cudaSuccess);
  CHECK(cudaFree(x) == cudaSuccess);
}

}  // namespace
}  // namespace pd::cuda
