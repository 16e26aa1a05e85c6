#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "data/dataset.h"

namespace pd {
namespace {

// Whole numbers below a bound, each as likely as the other: a 64-bit draw that would favour the
// small ones is thrown away.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t epoch) : key_(HashBytes("epoch order", seed)), epoch_(epoch) {}

  uint64_t Below(uint64_t bound) {
    const uint64_t fair = UINT64_MAX - UINT64_MAX % bound;  // a multiple of bound
    uint64_t draw = 0;
    do {
      const auto bits = Philox(key_, epoch_, counter_++);
      draw = uint64_t{bits[1]} << 32 | bits[0];
    } while (draw >= fair);
    return draw % bound;
  }

 private:
  uint64_t key_, epoch_;
  uint64_t counter_ = 0;
};

}  // namespace

std::vector<int64_t> EpochOrder(uint64_t seed, uint64_t epoch, int64_t size) {
  PD_CHECK(size >= 0, "{} samples", size);
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  Draws draws(seed, epoch);
  for (size_t left = order.size(); left > 1; --left) {  // Fisher and Yates, from the back
    std::swap(order[left - 1], order[draws.Below(left)]);
  }
  return order;
}

}  // namespace pd
