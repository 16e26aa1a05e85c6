#include "backend/cuda/cuda_op.h"

#include <limits>

#include "base/error.h"

namespace pd::cuda {

const Layout& DenseInput(const OpRequest& request, size_t index, std::string_view op, DType dtype) {
  PD_CHECK(index < request.x.size(), "{}: {} inputs, wanted at least {}", op, request.x.size(),
           index + 1);
  const Layout& x = request.x[index];
  PD_CHECK(x.dense() && x.dtype == dtype, "{}: input {} is not dense {}", op, index, NameOf(dtype));
  const size_t rank = dtype == DType::kF32 ? 2 : 1;
  PD_CHECK(x.dims.size() >= rank && Elements(x.dims) > 0, "{}: input {} has shape {}", op, index,
           ToString(x.dims));
  return x;
}

void CheckParams(const OpRequest& request, const OpInfo& info, std::string_view op) {
  if (request.params.empty()) return;
  PD_CHECK(request.params.size() == info.params.size(), "{}: {} parameters fixed, it has {}", op,
           request.params.size(), info.params.size());
  for (size_t i = 0; i < info.params.size(); ++i) {
    const Layout& given = request.params[i];
    PD_CHECK(given.dense() && given.dims == info.params[i].dims && given.dtype == DType::kF32,
             "{}: parameter {} is fixed to shape {}, it has {}", op, i, ToString(given.dims),
             ToString(info.params[i].dims));
  }
}

int ToInt(int64_t value, std::string_view op, std::string_view what) {
  if (value < 0 || value > std::numeric_limits<int>::max()) {
    Throw(ErrorCode::kInvalidInput, "{}: {} is {}, the CUDA libraries take up to {}", op, what,
          value, std::numeric_limits<int>::max());
  }
  return static_cast<int>(value);
}

UniqueTensorDesc MakeTensorDesc(int64_t n, int64_t c, int64_t h, int64_t w, std::string_view op) {
  ToInt(n * c * h * w, op, "the number of elements");
  auto desc = Make<UniqueTensorDesc>(cudnnCreateTensorDescriptor, "cudnnCreateTensorDescriptor");
  PD_CUDNN(cudnnSetTensor4dDescriptor(desc.get(), CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
                                      static_cast<int>(n), static_cast<int>(c), static_cast<int>(h),
                                      static_cast<int>(w)));
  return desc;
}

UniqueTensorDesc MakeTensorDesc(const Shape& dims, std::string_view op) {
  return MakeTensorDesc(dims[0], dims[1], ElementsFrom(dims, 2), 1, op);
}

}  // namespace pd::cuda
