#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pd {

enum class DType { kF32, kF64, kI32 };

size_t SizeOf(DType dtype);
std::string_view NameOf(DType dtype);

/// The extents of a tensor, outermost first. In models and messages the minibatch dimension is left
/// out; a backend's Layout has it in front.
using Shape = std::vector<int64_t>;

/// Product of the extents; 1 for a scalar.
int64_t Elements(const Shape& shape);
/// Product of the extents from `first` on.
int64_t ElementsFrom(const Shape& shape, size_t first);
/// `sample` with the minibatch dimension in front.
Shape WithBatch(int64_t batch, const Shape& sample);
/// "[64, 1, 28, 28]"
std::string ToString(const Shape& shape);

/// A target with this value is not counted: it has no loss and no gradient (PyTorch's
/// ignore_index).
inline constexpr int32_t kIgnoredTarget = -100;

/// What a tensor holds for one sample.
struct TensorSpec {
  Shape shape;
  DType dtype = DType::kF32;

  bool operator==(const TensorSpec&) const = default;
  /// Bytes of `batch` samples, dense.
  size_t Bytes(int64_t batch) const {
    return static_cast<size_t>(batch * Elements(shape)) * SizeOf(dtype);
  }
};

}  // namespace pd
