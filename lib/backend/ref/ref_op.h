#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include "backend/op.h"
#include "base/error.h"

namespace pd::ref {

// What the operations of the reference backend have in common. They are the oracle that other
// backends are held against: plain loops over dense tensors of T (float or double), each output
// element summed in double whatever T is, in one fixed order, and rounded to T once.

template <typename T>
constexpr DType kDTypeOf = std::is_same_v<T, double> ? DType::kF64 : DType::kF32;

/// Input `index` of a request, held to be dense and of type `dtype`.
inline const Layout& DenseInput(const OpRequest& request, size_t index, DType dtype,
                                std::string_view op) {
  PD_CHECK(index < request.x.size(), "{}: {} inputs, wanted at least {}", op, request.x.size(),
           index + 1);
  const Layout& x = request.x[index];
  PD_CHECK(x.dense() && x.dtype == dtype, "{}: input {} is not dense {}", op, index, NameOf(dtype));
  PD_CHECK(!x.dims.empty() && Elements(x.dims) > 0, "{}: input {} has shape {}", op, index,
           ToString(x.dims));
  return x;
}

/// The first input, which has `rank` dimensions (0: any from 2).
inline const Layout& MainInput(const OpRequest& request, DType dtype, size_t rank,
                               std::string_view op) {
  const Layout& x = DenseInput(request, 0, dtype, op);
  PD_CHECK(rank == 0 ? x.dims.size() >= 2 : x.dims.size() == rank, "{}: input has shape {}", op,
           ToString(x.dims));
  return x;
}

/// Layouts that the request fixes must be those that the operation has: there is only one.
inline void CheckParams(const OpRequest& request, const OpInfo& info, std::string_view op) {
  if (request.params.empty()) return;
  PD_CHECK(request.params.size() == info.params.size(), "{}: {} parameters fixed, it has {}", op,
           request.params.size(), info.params.size());
  for (size_t i = 0; i < info.params.size(); ++i) {
    const Layout& given = request.params[i];
    PD_CHECK(
        given.dense() && given.dims == info.params[i].dims && given.dtype == info.params[i].dtype,
        "{}: parameter {} is fixed to shape {}, it has {}", op, i, ToString(given.dims),
        ToString(info.params[i].dims));
  }
}

template <typename T>
const T* In(const void* data) {
  return static_cast<const T*>(data);
}
template <typename T>
T* Out(void* data) {
  return static_cast<T*>(data);
}

}  // namespace pd::ref
