#pragma once

#include <array>
#include <cstdint>

namespace pd {

/// A window that slides over an image: convolution and pooling. [h, w] each.
struct Window {
  std::array<int64_t, 2> kernel{}, stride{1, 1}, padding{0, 0}, dilation{1, 1};
  bool ceil = false;
};

/// How often the window fits in dimension `d` of extent `in`; below 1: it does not fit. The one
/// place with this rule. Source: PyTorch, pooling_output_shape and conv_output_size:
///     floor((in + 2·padding - dilation·(kernel - 1) - 1) / stride) + 1,
/// or rounded up with `ceil`, where a last window that would start beyond the input and its left
/// padding is left out.
int64_t WindowCount(const Window& window, int d, int64_t in);

}  // namespace pd
