#include "tensor/tensor.h"

#include <fmt/format.h>

namespace pd {

size_t SizeOf(DType dtype) { return dtype == DType::kF64 ? 8 : 4; }

std::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
  }
  return "?";
}

int64_t Elements(const Shape& shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  return elements;
}

std::string ToString(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace pd
