#include "layer/window.h"

namespace pd {
namespace {

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace

int64_t WindowCount(const Window& window, int d, int64_t in) {
  const int64_t stride = window.stride[d];
  const int64_t reach = window.dilation[d] * (window.kernel[d] - 1) + 1;
  const int64_t room = in + 2 * window.padding[d] - reach;
  int64_t count = FloorDivide(room + (window.ceil ? stride - 1 : 0), stride) + 1;
  if (window.ceil && (count - 1) * stride >= in + window.padding[d]) --count;
  return count;
}

}  // namespace pd
