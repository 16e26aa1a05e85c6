#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "backend/elementwise.h"
#include "backend/registry.h"
#include "support/catch.h"

// The element-wise work on parameters: bit for bit what one-by-one rounding gives.

namespace pd {
namespace {

// Counts around the vector widths.
const std::vector<size_t> kCounts = {0, 1, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 1000, 50021};

template <typename T>
std::vector<T> Values(size_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<T> values(count);
  for (T& value : values) {
    value = static_cast<T>(static_cast<double>(engine() >> 11) * 0x1p-52 - 1);
  }
  return values;
}

/// A copy in the backend's memory.
template <typename T>
class Copy {
 public:
  Copy(Backend* backend, const std::vector<T>& values)
      : backend_(*backend),
        count_(values.size()),
        buffer_(backend->Allocate((count_ + 1) * sizeof(T))) {
    if (count_ > 0) backend_.FromHost(LayoutOf(count_), values.data(), buffer_.data());
  }
  T* data() { return reinterpret_cast<T*>(buffer_.data()); }
  /// Nothing behind the end was written.
  std::vector<T> values() {
    std::vector<T> all(count_ + 1);
    backend_.ToHost(LayoutOf(count_ + 1), buffer_.data(), all.data());
    REQUIRE(all.back() == 0);
    all.pop_back();
    return all;
  }

 private:
  static Layout LayoutOf(size_t count) {
    return DenseLayout({static_cast<int64_t>(count)},
                       std::is_same_v<T, double> ? DType::kF64 : DType::kF32);
  }

  Backend& backend_;
  size_t count_;
  Buffer buffer_;
};

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// One element's step, each operation rounded to T.
template <typename T>
void PlainSgd(const SgdArgs& args, T g, T w, T* m, T* w_out) {
  if (args.weight_decay != 0) {
    volatile T decay = static_cast<T>(args.weight_decay) * w;
    g = g + decay;
  }
  if (args.momentum != 0) {
    volatile T kept = static_cast<T>(args.momentum) * *m;
    *m = kept + g;
    g = *m;
  }
  volatile T step = static_cast<T>(args.lr) * g;
  *w_out = w - step;
}

template <typename T>
void CheckSums(Backend* backend) {
  for (const size_t count : kCounts) {
    INFO(backend->kind() << ", " << count << " elements");
    const std::vector<T> a = Values<T>(count, 1);
    const std::vector<T> x = Values<T>(count, 2);
    const float scale = 0.3F;
    std::vector<T> sum = a;
    std::vector<T> scaled = a;
    std::vector<T> first(count);
    for (size_t i = 0; i < count; ++i) {
      volatile T product = x[i] * static_cast<T>(scale);
      sum[i] = a[i] + x[i];
      scaled[i] = a[i] + product;
      first[i] = product;
    }
    Copy<T> source(backend, x);
    Copy<T> acc(backend, a);
    backend->Accumulate(acc.data(), source.data(), count);
    CHECK(SameBits(acc.values(), sum));
    std::vector<T> weighted = a;
    std::vector<T> own = x;
    AddScaledHost(backend->dtype(), weighted.data(), own.data(), scale, false, count);
    CHECK(SameBits(weighted, scaled));
    AddScaledHost(backend->dtype(), weighted.data(), own.data(), scale, true, count);
    CHECK(SameBits(weighted, first));
    AddScaledHost(backend->dtype(), own.data(), own.data(), scale, true, count);
    CHECK(SameBits(own, first));
  }
}

template <typename T>
void CheckSgd(Backend* backend, const SgdArgs& settings, bool in_place, size_t pieces) {
  for (const size_t count : kCounts) {
    INFO(backend->kind() << ", " << count << " elements, momentum " << settings.momentum
                         << ", decay " << settings.weight_decay);
    const std::vector<T> w = Values<T>(count, 3);
    const std::vector<T> g = Values<T>(count, 4);
    std::vector<T> m = Values<T>(count, 5);
    Copy<T> weights(backend, w);
    Copy<T> gradient(backend, g);
    Copy<T> momentum(backend, m);
    Copy<T> fresh(backend, std::vector<T>(count));
    T* out = in_place ? weights.data() : fresh.data();
    std::vector<T> expected(count);
    for (size_t i = 0; i < count; ++i) PlainSgd(settings, g[i], w[i], &m[i], &expected[i]);
    for (size_t piece = 0; piece < pieces; ++piece) {
      const size_t begin = count * piece / pieces;
      SgdArgs args = settings;
      args.w = weights.data() + begin;
      args.g = gradient.data() + begin;
      args.m = settings.momentum == 0 ? nullptr : momentum.data() + begin;
      args.w_out = out + begin;
      args.count = count * (piece + 1) / pieces - begin;
      backend->Sgd(args);
    }
    CHECK(SameBits(in_place ? weights.values() : fresh.values(), expected));
    CHECK(SameBits(momentum.values(), m));
    if (!in_place) CHECK(SameBits(weights.values(), w));
  }
}

TEST_CASE("Accumulate and AddScaled round each product and sum once", "[elementwise]") {
  for (const std::string_view kind : BackendKinds()) {
    const auto backend = MakeBackend(kind, 1);
    if (backend->dtype() == DType::kF64) {
      CheckSums<double>(backend.get());
    } else {
      CheckSums<float>(backend.get());
    }
  }
}

TEST_CASE("Sgd is PyTorch's formula bit for bit, in place or not, however the range is cut",
          "[elementwise]") {
  for (const std::string_view kind : BackendKinds()) {
    const auto backend = MakeBackend(kind, 1);
    for (const double momentum : {0.0, 0.9}) {
      for (const double decay : {0.0, 5e-4}) {
        SgdArgs settings;
        settings.lr = 0.01;
        settings.momentum = momentum;
        settings.weight_decay = decay;
        for (const size_t pieces : {1, 3}) {
          const bool in_place = pieces == 3;
          if (backend->dtype() == DType::kF64) {
            CheckSgd<double>(backend.get(), settings, in_place, pieces);
          } else {
            CheckSgd<float>(backend.get(), settings, in_place, pieces);
          }
        }
      }
    }
  }
}

// lr 0.5, momentum 0.5, weight decay 0.25, w = 1, gradients 1, 0.5, -1; all exact in binary:
//   1: g' = 1 + 0.25·1 = 1.25;               m = 1.25 (the first);            w = 1 - 0.625 = 0.375
//   2: g' = 0.5 + 0.25·0.375 = 0.59375;      m = 0.625 + 0.59375 = 1.21875;   w = -0.234375
//   3: g' = -1 - 0.05859375 = -1.05859375;   m = 0.609375 - 1.05859375 = -0.44921875;
//                                            w = -0.234375 + 0.224609375 = -0.009765625
template <typename T>
void CheckThreeSteps(Backend* backend) {
  const T gradients[] = {T{1}, T{0.5}, T{-1}};
  const T weights[] = {T{0.375}, T{-0.234375}, T{-0.009765625}};
  const T momenta[] = {T{1.25}, T{1.21875}, T{-0.44921875}};
  Copy<T> w(backend, {T{1}});
  Copy<T> m(backend, {T{0}});
  for (int step = 0; step < 3; ++step) {
    Copy<T> g(backend, {gradients[step]});
    SgdArgs args{.w = w.data(), .g = g.data(), .m = m.data(), .w_out = w.data(), .count = 1};
    args.lr = 0.5;
    args.momentum = 0.5;
    args.weight_decay = 0.25;
    backend->Sgd(args);
    CHECK(w.values()[0] == weights[step]);
    CHECK(m.values()[0] == momenta[step]);
  }
}

TEST_CASE("three steps of Sgd with momentum and weight decay give the values worked out by hand",
          "[elementwise]") {
  for (const std::string_view kind : BackendKinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    if (backend->dtype() == DType::kF64) {
      CheckThreeSteps<double>(backend.get());
    } else {
      CheckThreeSteps<float>(backend.get());
    }
  }
}

}  // namespace
}  // namespace pd
