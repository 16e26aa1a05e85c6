#pragma once

#include <cstdint>
#include <string_view>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels.h"
#include "backend/op.h"

namespace pd::cuda {

/// What the operations of this backend have in common. They keep the context, and are gone before
/// it.
class CudaOp : public Op {
 protected:
  explicit CudaOp(const Context& context) : context_(context) {}

  cudaStream_t stream() const { return context_.compute(); }
  /// Queues a copy of a whole tensor.
  void CopyAsync(void* to, const void* from, size_t bytes) const {
    PD_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()));
  }

  const Context& context_;
};

/// Input `index` of a request, held to be dense and of type `dtype`, with at least 2 dimensions
/// when it is f32.
const Layout& DenseInput(const OpRequest& request, size_t index, std::string_view op,
                         DType dtype = DType::kF32);
/// Layouts that the request fixes must be those that the operation has: there is only one.
void CheckParams(const OpRequest& request, const OpInfo& info, std::string_view op);
/// As the libraries take it. Throws kInvalidInput when it is too large.
int ToInt(int64_t value, std::string_view op, std::string_view what);

/// A tensor [N,C,…].
inline ChannelShape ChannelsOf(const Shape& dims) {
  return {dims[0], dims[1], ElementsFrom(dims, 2)};
}

/// Dense f32 [n,c,h,w]. Throws kInvalidInput when cuDNN cannot have it (2³¹ elements or more).
UniqueTensorDesc MakeTensorDesc(int64_t n, int64_t c, int64_t h, int64_t w, std::string_view op);
/// Dense f32 [N,C,…] as [N,C,rest,1].
UniqueTensorDesc MakeTensorDesc(const Shape& dims, std::string_view op);

/// Blending factors of cuDNN and cuBLAS: results overwrite.
constexpr float kOne = 1;
constexpr float kZero = 0;

inline const float* Floats(const void* data) { return static_cast<const float*>(data); }
inline float* Floats(void* data) { return static_cast<float*>(data); }

}  // namespace pd::cuda
