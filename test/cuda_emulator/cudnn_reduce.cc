// cuDNN's reductions: cudnnReduceTensor, and the gradient of a convolution's bias.

#include <cmath>
#include <vector>

#include "cudnn_common.h"

namespace cuda_emulator::library {
namespace {

bool HasIndices(cudnnReduceTensorOp_t op) {
  return op == CUDNN_REDUCE_TENSOR_MIN || op == CUDNN_REDUCE_TENSOR_MAX ||
         op == CUDNN_REDUCE_TENSOR_AMAX;
}

// A reduction: for each element of C, the elements of A at its place and along the `reduced` axes.
struct Reduction {
  cudnnReduceTensorStruct op;
  TensorView a, c;
  TensorView reduced;                // A's axes where C has 1 and A more
  int64_t a_strides[kMaxRank] = {};  // A's strides on the axes that stay, 0 on the reduced ones
  bool indices = false;

  Reduction(const cudnnReduceTensorStruct* descriptor, const cudnnTensorStruct* a_descriptor,
            const cudnnTensorStruct* c_descriptor)
      : op(Described(descriptor, "reduceTensorDesc")),
        a(FloatTensor(a_descriptor, "aDesc", kMaxRank)),
        c(FloatResult(c_descriptor, "cDesc", kMaxRank)),
        indices(op.indices == CUDNN_REDUCE_TENSOR_FLATTENED_INDICES) {
    Require(op.compute_type == CUDNN_DATA_FLOAT, Fault::kNotSupported, "reduceTensorCompType",
            "is not CUDNN_DATA_FLOAT");
    Require(a.rank == c.rank, Fault::kBadParam, "cDesc", "has another number of dimensions");
    for (int i = 0; i < a.rank; ++i) {
      Require(c.dims[i] == a.dims[i] || c.dims[i] == 1, Fault::kBadParam, "cDesc",
              "has a dimension that is neither 1 nor A's");
      if (c.dims[i] == a.dims[i]) {
        a_strides[i] = a.strides[i];
      } else {
        reduced.dims[reduced.rank] = a.dims[i];
        reduced.strides[reduced.rank] = a.strides[i];
        ++reduced.rank;
      }
    }
    Require(reduced.rank > 0, Fault::kNotSupported, "cDesc", "leaves nothing to reduce");
    Require(!indices || HasIndices(op.op), Fault::kBadParam, "indices",
            "exist for MIN, MAX and AMAX only");
  }

  size_t IndicesBytes() const {
    return indices ? static_cast<size_t>(c.Count()) * sizeof(uint32_t) : 0;
  }
  // What a two-pass reduction might ask, and no round number.
  size_t WorkspaceBytes() const { return static_cast<size_t>(c.Count()) * 12 + 20; }
};

// Values with larger keys win; NaN wins if it propagates, and never otherwise.
double Key(const cudnnReduceTensorStruct& op, double value) {
  if (std::isnan(value)) return op.nan == CUDNN_PROPAGATE_NAN ? INFINITY : -INFINITY;
  if (op.op == CUDNN_REDUCE_TENSOR_MIN) return -value;
  return op.op == CUDNN_REDUCE_TENSOR_AMAX ? std::abs(value) : value;
}

double SelectExtreme(const cudnnReduceTensorStruct& op, const std::vector<double>& values,
                     uint32_t* index) {
  size_t best = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    const bool nan_won = std::isnan(values[best]) && op.nan == CUDNN_PROPAGATE_NAN;
    if (!nan_won && Key(op, values[i]) > Key(op, values[best])) best = i;
  }
  if (index != nullptr) *index = static_cast<uint32_t>(best);
  return op.op == CUDNN_REDUCE_TENSOR_AMAX ? std::abs(values[best]) : values[best];
}

double Reduce(const cudnnReduceTensorStruct& op, const std::vector<double>& values,
              uint32_t* index) {
  const auto sum = [&](auto f) {
    double total = 0;
    for (const double v : values) total += f(v);
    return total;
  };
  switch (op.op) {
    case CUDNN_REDUCE_TENSOR_ADD:
      return sum([](double v) { return v; });
    case CUDNN_REDUCE_TENSOR_AVG:
      return sum([](double v) { return v; }) / static_cast<double>(values.size());
    case CUDNN_REDUCE_TENSOR_NORM1:
      return sum([](double v) { return std::abs(v); });
    case CUDNN_REDUCE_TENSOR_NORM2:
      return std::sqrt(sum([](double v) { return v * v; }));
    case CUDNN_REDUCE_TENSOR_MUL:
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS: {
      double product = 1;
      for (const double v : values) {
        if (v != 0 || op.op == CUDNN_REDUCE_TENSOR_MUL) product *= v;
      }
      return product;
    }
    case CUDNN_REDUCE_TENSOR_MIN:
    case CUDNN_REDUCE_TENSOR_MAX:
    case CUDNN_REDUCE_TENSOR_AMAX:
      return SelectExtreme(op, values, index);
  }
  return NAN;
}

void RunReduction(const Reduction& r, Blend blend, const float* a, float* c, uint32_t* indices) {
  std::vector<double> values(static_cast<size_t>(r.reduced.Count()));
  size_t flat = 0;  // indices are dense, in C's order
  ForEachIndex<2>(r.c.rank, r.c.dims, {r.a_strides, r.c.strides}, [&](const int64_t* at) {
    size_t i = 0;
    ForEachIndex<1>(r.reduced.rank, r.reduced.dims, {r.reduced.strides},
                    [&](const int64_t* in) { values[i++] = a[at[0] + in[0]]; });
    blend(Reduce(r.op, values, indices == nullptr ? nullptr : &indices[flat]), &c[at[1]]);
    ++flat;
  });
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnCreateReduceTensorDescriptor(cudnnReduceTensorDescriptor_t* reduceTensorDesc) {
  return CreateDescriptor(__func__, reduceTensorDesc);
}

cudnnStatus_t cudnnDestroyReduceTensorDescriptor(cudnnReduceTensorDescriptor_t reduceTensorDesc) {
  return DestroyDescriptor(__func__, reduceTensorDesc);
}

cudnnStatus_t cudnnSetReduceTensorDescriptor(cudnnReduceTensorDescriptor_t reduceTensorDesc,
                                             cudnnReduceTensorOp_t reduceTensorOp,
                                             cudnnDataType_t reduceTensorCompType,
                                             cudnnNanPropagation_t reduceTensorNanOpt,
                                             cudnnReduceTensorIndices_t reduceTensorIndices,
                                             cudnnIndicesType_t reduceTensorIndicesType) {
  return CudnnCall(__func__, [&] {
    Require(reduceTensorOp >= CUDNN_REDUCE_TENSOR_ADD &&
                reduceTensorOp <= CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS,
            Fault::kBadParam, "reduceTensorOp", "is no cudnnReduceTensorOp_t");
    Require(ValidDataType(reduceTensorCompType), Fault::kBadParam, "reduceTensorCompType",
            "is no type");
    Require(ValidNan(reduceTensorNanOpt), Fault::kBadParam, "reduceTensorNanOpt", "is no option");
    Require(reduceTensorIndices == CUDNN_REDUCE_TENSOR_NO_INDICES ||
                reduceTensorIndices == CUDNN_REDUCE_TENSOR_FLATTENED_INDICES,
            Fault::kBadParam, "reduceTensorIndices", "is no option");
    Require(reduceTensorIndicesType == CUDNN_32BIT_INDICES, Fault::kNotSupported,
            "reduceTensorIndicesType", "is not CUDNN_32BIT_INDICES");
    Writable(reduceTensorDesc, "reduceTensorDesc") = {true,
                                                      reduceTensorOp,
                                                      reduceTensorCompType,
                                                      reduceTensorNanOpt,
                                                      reduceTensorIndices,
                                                      reduceTensorIndicesType};
  });
}

cudnnStatus_t cudnnGetReductionIndicesSize(cudnnHandle_t handle,
                                           const cudnnReduceTensorDescriptor_t reduceTensorDesc,
                                           const cudnnTensorDescriptor_t aDesc,
                                           const cudnnTensorDescriptor_t cDesc,
                                           size_t* sizeInBytes) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    RequireHost(sizeInBytes, "sizeInBytes");
    *sizeInBytes = Reduction(reduceTensorDesc, aDesc, cDesc).IndicesBytes();
  });
}

cudnnStatus_t cudnnGetReductionWorkspaceSize(cudnnHandle_t handle,
                                             const cudnnReduceTensorDescriptor_t reduceTensorDesc,
                                             const cudnnTensorDescriptor_t aDesc,
                                             const cudnnTensorDescriptor_t cDesc,
                                             size_t* sizeInBytes) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    RequireHost(sizeInBytes, "sizeInBytes");
    *sizeInBytes = Reduction(reduceTensorDesc, aDesc, cDesc).WorkspaceBytes();
  });
}

// C = alpha · reduce(A) + beta C over the axes where C has 1. Indices (32 bits) count along the
// reduced axes only, flattened; a tie gives the first, which the documentation leaves open.
cudnnStatus_t cudnnReduceTensor(cudnnHandle_t handle,
                                const cudnnReduceTensorDescriptor_t reduceTensorDesc, void* indices,
                                size_t indicesSizeInBytes, void* workspace,
                                size_t workspaceSizeInBytes, const void* alpha,
                                const cudnnTensorDescriptor_t aDesc, const void* A,
                                const void* beta, const cudnnTensorDescriptor_t cDesc, void* C) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const Reduction reduction(reduceTensorDesc, aDesc, cDesc);
    Require(indicesSizeInBytes >= reduction.IndicesBytes(), Fault::kInvalidValue,
            "indicesSizeInBytes", "is less than cudnnGetReductionIndicesSize asks");
    Require(workspaceSizeInBytes >= reduction.WorkspaceBytes(), Fault::kInvalidValue,
            "workspaceSizeInBytes", "is less than cudnnGetReductionWorkspaceSize asks");
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnReduceTensor");
    const float* a = operation.In(A, reduction.a, "A");
    float* c = operation.Out(C, reduction.c, "C");
    operation.UseWorkspace(workspace, workspaceSizeInBytes, "workspace");
    uint32_t* found = nullptr;
    if (reduction.indices) {
      found =
          static_cast<uint32_t*>(operation.OutBytes(indices, reduction.IndicesBytes(), "indices"));
    }
    operation.Launch([=] { RunReduction(reduction, blend, a, c, found); });
  });
}

// db [1, K, 1, 1] = alpha · the sum of dy [N, K, P, Q] over all but K + beta db.
cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void* alpha,
                                           const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                           const void* beta, const cudnnTensorDescriptor_t dbDesc,
                                           void* db) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const TensorView dy_view = FloatTensor(dyDesc, "dyDesc");
    const TensorView db_view = FloatResult(dbDesc, "dbDesc");
    Require(dy_view.rank == db_view.rank, Fault::kBadParam, "dbDesc",
            "has another number of dimensions");
    for (int i = 0; i < db_view.rank; ++i) {
      Require(db_view.dims[i] == (i == 1 ? dy_view.dims[1] : 1), Fault::kBadParam, "dbDesc",
              "is not of dimensions 1, K, 1, 1");
    }
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnConvolutionBackwardBias");
    const float* in = operation.In(dy, dy_view, "dy");
    float* out = operation.Out(db, db_view, "db");
    operation.Launch([=] {
      TensorView slice = dy_view;
      slice.dims[1] = 1;
      for (int64_t k = 0; k < dy_view.dims[1]; ++k) {
        double sum = 0;
        const float* base = in + k * dy_view.strides[1];
        ForEachIndex<1>(slice.rank, slice.dims, {slice.strides},
                        [&](const int64_t* at) { sum += base[at[0]]; });
        blend(sum, &out[k * db_view.strides[1]]);
      }
    });
  });
}

}  // extern "C"
