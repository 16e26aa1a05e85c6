#include <algorithm>
#include <numeric>
#include <set>

#include "data/dataset.h"
#include "support/catch.h"

namespace pd {
namespace {

TEST_CASE("an epoch's order is a permutation") {
  for (const int64_t size : {0, 1, 2, 3, 65, 1000, 60000}) {
    std::vector<int64_t> order = EpochOrder(1, 0, size);
    std::vector<int64_t> expected(static_cast<size_t>(size));
    std::iota(expected.begin(), expected.end(), 0);
    if (size > 3) CHECK(order != expected);
    std::sort(order.begin(), order.end());
    CHECK(order == expected);
  }
}

TEST_CASE("each epoch and each seed has its own order, the same every time") {
  std::set<std::vector<int64_t>> orders;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t epoch = 0; epoch < 10; ++epoch) {
      const auto order = EpochOrder(seed, epoch, 100);
      CHECK(order == EpochOrder(seed, epoch, 100));
      orders.insert(order);
    }
  }
  CHECK(orders.size() == 100);
}

// Chi-square of the 24 orders of 4 samples over 24,000 epochs: 23 degrees of freedom, 1e-6
// quantile 70.5.
TEST_CASE("every order is equally likely") {
  std::vector<int> counts(256);
  for (uint64_t epoch = 0; epoch < 24000; ++epoch) {
    const auto o = EpochOrder(3, epoch, 4);
    ++counts[static_cast<size_t>(o[0] | o[1] << 2 | o[2] << 4 | o[3] << 6)];
  }
  double chi_square = 0;
  int seen = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++seen;
    chi_square += (count - 1000.0) * (count - 1000.0) / 1000;
  }
  CHECK(seen == 24);
  CHECK(chi_square < 70.5);
}

}  // namespace
}  // namespace pd
