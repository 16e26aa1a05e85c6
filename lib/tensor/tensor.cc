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

int64_t Elements(const Shape& shape) { return ElementsFrom(shape, 0); }

int64_t ElementsFrom(const Shape& shape, size_t first) {
  int64_t elements = 1;
  for (size_t i = first; i < shape.size(); ++i) elements *= shape[i];
  return elements;
}

Shape WithBatch(int64_t batch, const Shape& sample) {
  Shape shape = {batch};
  shape.insert(shape.end(), sample.begin(), sample.end());
  return shape;
}

std::string ToString(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace pd
