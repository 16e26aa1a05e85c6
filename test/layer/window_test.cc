#include "layer/window.h"

#include "support/catch.h"

namespace pd {
namespace {

struct Case {
  int64_t in, kernel, stride, padding, dilation;
  bool ceil;
  int64_t out;
};

TEST_CASE("Output sizes follow PyTorch's rule") {
  // Worked by hand from floor((in + 2p - d(k-1) - 1)/s) + 1 and, with ceil, from the rule that the
  // last window starts inside the input or its left padding.
  const Case cases[] = {
      {28, 5, 1, 0, 1, false, 24},  // lenet
      {28, 3, 1, 1, 1, false, 28},  // same size
      {28, 3, 2, 1, 1, false, 14},
      {224, 7, 2, 3, 1, false, 112},
      {224, 11, 4, 2, 1, false, 55},
      {7, 2, 2, 0, 1, false, 3},
      {7, 2, 2, 0, 1, true, 4},
      {112, 3, 2, 0, 1, true, 56},
      {6, 3, 2, 0, 1, false, 2},
      {6, 3, 2, 0, 1, true, 3},
      {5, 5, 1, 0, 1, false, 1},
      {7, 3, 1, 2, 2, false, 7},  // dilation: the kernel reaches 5
      {3, 2, 2, 3, 1, false, 4},  // more padding than kernel, as convolutions may have
      {1, 1, 1, 0, 1, false, 1},
      // Rounding up gives windows that start past the end, which are left out.
      {4, 2, 4, 0, 1, true, 1},
      {5, 2, 5, 0, 1, true, 1},
      {4, 2, 3, 1, 1, true, 2},  // starts -1, 2
      {4, 2, 5, 1, 1, true, 1},  // a start of 4 is past the image
      {2, 3, 2, 0, 1, true, 1},  // ceil lets a window reach over a smaller image
      // Does not fit: below 1.
      {4, 5, 1, 0, 1, false, 0},
      {2, 3, 2, 0, 1, false, 0},
      {1, 9, 1, 0, 1, false, -7},
      {5, 3, 1, 0, 3, false, -1},
  };
  for (const Case& c : cases) {
    CAPTURE(c.in, c.kernel, c.stride, c.padding, c.dilation, c.ceil);
    Window window;
    // The other dimension differs, so that a mix-up would show.
    window.kernel = {1, c.kernel};
    window.stride = {9, c.stride};
    window.padding = {0, c.padding};
    window.dilation = {7, c.dilation};
    window.ceil = c.ceil;
    CHECK(WindowCount(window, 1, c.in) == c.out);
  }
}

}  // namespace
}  // namespace pd
