// cuDNN's tensor and filter descriptors.

#include <climits>

#include "cudnn_common.h"

namespace cuda_emulator::library {

bool ValidDataType(cudnnDataType_t type) {
  return type >= CUDNN_DATA_FLOAT && type <= CUDNN_DATA_COMPLEX_FP64;
}

bool ValidFormat(cudnnTensorFormat_t format) {
  return format >= CUDNN_TENSOR_NCHW && format <= CUDNN_TENSOR_NCHW_VECT_C;
}

TensorView FloatTensor(const cudnnTensorStruct* descriptor, const char* name, int max_rank) {
  const cudnnTensorStruct& tensor = Described(descriptor, name);
  Require(tensor.type == CUDNN_DATA_FLOAT, Fault::kNotSupported, name,
          "is not of CUDNN_DATA_FLOAT");
  Require(tensor.view.rank >= 4, Fault::kNotSupported, name, "has fewer than 4 dimensions");
  Require(tensor.view.rank <= max_rank, Fault::kNotSupported, name, "has too many dimensions");
  return tensor.view;
}

TensorView FloatResult(const cudnnTensorStruct* descriptor, const char* name, int max_rank) {
  const TensorView view = FloatTensor(descriptor, name, max_rank);
  Require(!view.Overlaps(), Fault::kNotSupported, name, "is written and has overlapping strides");
  return view;
}

void AllowInPlace(Operation& operation, const void* input, const TensorView& input_view,
                  const void* output, const TensorView& output_view) {
  if (input != output) return;
  Require(input_view.SameDims(output_view) && input_view.SameStrides(output_view), Fault::kBadParam,
          "in-place operation", "needs identical descriptors");
  operation.AllowSame(input, output);
}

namespace {

constexpr int64_t kMaxElements = int64_t{1} << 31;  // "2 Giga-elements"

void CheckTensor(cudnnDataType_t type, const TensorView& view) {
  Require(ValidDataType(type), Fault::kBadParam, "dataType", "is no cudnnDataType_t");
  for (int i = 0; i < view.rank; ++i) {
    Require(view.dims[i] > 0, Fault::kBadParam, "dimension", "is zero or negative");
    Require(view.strides[i] > 0, Fault::kBadParam, "stride", "is zero or negative");
  }
  double last = 1;
  for (int i = 0; i < view.rank; ++i) {
    last += static_cast<double>(view.dims[i] - 1) * static_cast<double>(view.strides[i]);
  }
  Require(last < static_cast<double>(kMaxElements), Fault::kNotSupported, "tensor",
          "exceeds 2 Giga-elements");
}

// Strides of the packed formats. Dimensions that are not positive give strides of 1 and are refused
// by CheckTensor.
void PackStrides(TensorView& view, cudnnTensorFormat_t format) {
  int order[kMaxRank];  // innermost first
  int count = 0;
  if (format == CUDNN_TENSOR_NHWC) order[count++] = 1;
  for (int i = view.rank - 1; i >= 2; --i) order[count++] = i;
  if (format != CUDNN_TENSOR_NHWC) order[count++] = 1;
  order[count++] = 0;
  int64_t stride = 1;
  for (int i = 0; i < count; ++i) {
    view.strides[order[i]] = stride;
    if (view.dims[order[i]] > 0 && stride < kMaxElements) stride *= view.dims[order[i]];
  }
}

void CheckFormat(cudnnTensorFormat_t format) {
  Require(ValidFormat(format), Fault::kBadParam, "format", "is no cudnnTensorFormat_t");
  Require(format != CUDNN_TENSOR_NCHW_VECT_C, Fault::kNotSupported, "format",
          "CUDNN_TENSOR_NCHW_VECT_C is for int8 types");
}

// cuDNN documents tensors of 4 to CUDNN_DIM_MAX dimensions, and of 3 for the states of RNNs.
void CheckRank(int rank) {
  Require(rank >= 3 && rank <= CUDNN_DIM_MAX, Fault::kNotSupported, "nbDims",
          "is outside [3, CUDNN_DIM_MAX]");
}

size_t TypeBytes(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
      return 4;
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
      return 8;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
      return 1;
    default:
      throw Refused{Fault::kNotSupported, "the size of this data type is not emulated"};
  }
}

void SetTensor(cudnnTensorStruct* descriptor, cudnnDataType_t type, const TensorView& view) {
  CheckTensor(type, view);
  Writable(descriptor, "tensorDesc") = {true, type, view};
}

void SetFilter(cudnnFilterStruct* descriptor, cudnnDataType_t type, cudnnTensorFormat_t format,
               TensorView view) {
  CheckFormat(format);
  PackStrides(view, format);
  CheckTensor(type, view);
  Writable(descriptor, "filterDesc") = {true, type, format, view};
}

TensorView ViewOfDims(int rank, const int* dims) {
  Require(dims != nullptr, Fault::kBadParam, "dimensions", "are null");
  TensorView view;
  view.rank = rank;
  for (int i = 0; i < rank; ++i) view.dims[i] = dims[i];
  return view;
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensorDesc) {
  return CreateDescriptor(__func__, tensorDesc);
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensorDesc) {
  return DestroyDescriptor(__func__, tensorDesc);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensorDesc,
                                         cudnnTensorFormat_t format, cudnnDataType_t dataType,
                                         int n, int c, int h, int w) {
  return CudnnCall(__func__, [&] {
    CheckFormat(format);
    TensorView view{4, {n, c, h, w}, {}};
    PackStrides(view, format);
    SetTensor(tensorDesc, dataType, view);
  });
}

cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t tensorDesc,
                                           cudnnDataType_t dataType, int n, int c, int h, int w,
                                           int nStride, int cStride, int hStride, int wStride) {
  return CudnnCall(__func__, [&] {
    SetTensor(tensorDesc, dataType, {4, {n, c, h, w}, {nStride, cStride, hStride, wStride}});
  });
}

cudnnStatus_t cudnnGetTensor4dDescriptor(const cudnnTensorDescriptor_t tensorDesc,
                                         cudnnDataType_t* dataType, int* n, int* c, int* h, int* w,
                                         int* nStride, int* cStride, int* hStride, int* wStride) {
  return CudnnCall(__func__, [&] {
    const cudnnTensorStruct& tensor = Described(tensorDesc, "tensorDesc");
    Require(tensor.view.rank == 4, Fault::kBadParam, "tensorDesc", "is not of 4 dimensions");
    Put(dataType, tensor.type);
    int* const dims[] = {n, c, h, w};
    int* const strides[] = {nStride, cStride, hStride, wStride};
    for (int i = 0; i < 4; ++i) {
      Put(dims[i], static_cast<int>(tensor.view.dims[i]));
      Put(strides[i], static_cast<int>(tensor.view.strides[i]));
    }
  });
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensorDesc,
                                         cudnnDataType_t dataType, int nbDims, const int dimA[],
                                         const int strideA[]) {
  return CudnnCall(__func__, [&] {
    CheckRank(nbDims);
    Require(strideA != nullptr, Fault::kBadParam, "strideA", "is null");
    TensorView view = ViewOfDims(nbDims, dimA);
    for (int i = 0; i < nbDims; ++i) view.strides[i] = strideA[i];
    SetTensor(tensorDesc, dataType, view);
  });
}

cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t tensorDesc,
                                           cudnnTensorFormat_t format, cudnnDataType_t dataType,
                                           int nbDims, const int dimA[]) {
  return CudnnCall(__func__, [&] {
    CheckRank(nbDims);
    CheckFormat(format);
    TensorView view = ViewOfDims(nbDims, dimA);
    PackStrides(view, format);
    SetTensor(tensorDesc, dataType, view);
  });
}

cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensorDesc,
                                         int nbDimsRequested, cudnnDataType_t* dataType,
                                         int* nbDims, int dimA[], int strideA[]) {
  return CudnnCall(__func__, [&] {
    const cudnnTensorStruct& tensor = Described(tensorDesc, "tensorDesc");
    Require(nbDimsRequested > 0 && nbDimsRequested <= CUDNN_DIM_MAX, Fault::kBadParam,
            "nbDimsRequested", "is outside [1, CUDNN_DIM_MAX]");
    Put(dataType, tensor.type);
    Put(nbDims, tensor.view.rank);
    for (int i = 0; i < nbDimsRequested && i < tensor.view.rank; ++i) {
      if (dimA != nullptr) dimA[i] = static_cast<int>(tensor.view.dims[i]);
      if (strideA != nullptr) strideA[i] = static_cast<int>(tensor.view.strides[i]);
    }
  });
}

cudnnStatus_t cudnnGetTensorSizeInBytes(const cudnnTensorDescriptor_t tensorDesc, size_t* size) {
  return CudnnCall(__func__, [&] {
    const cudnnTensorStruct& tensor = Described(tensorDesc, "tensorDesc");
    Require(size != nullptr, Fault::kBadParam, "size", "is null");
    *size = static_cast<size_t>(tensor.view.Extent()) * TypeBytes(tensor.type);
  });
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filterDesc) {
  return CreateDescriptor(__func__, filterDesc);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filterDesc) {
  return DestroyDescriptor(__func__, filterDesc);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filterDesc,
                                         cudnnDataType_t dataType, cudnnTensorFormat_t format,
                                         int k, int c, int h, int w) {
  return CudnnCall(__func__, [&] {
    SetFilter(filterDesc, dataType, format, {4, {k, c, h, w}, {}});
  });
}

cudnnStatus_t cudnnGetFilter4dDescriptor(const cudnnFilterDescriptor_t filterDesc,
                                         cudnnDataType_t* dataType, cudnnTensorFormat_t* format,
                                         int* k, int* c, int* h, int* w) {
  return CudnnCall(__func__, [&] {
    const cudnnFilterStruct& filter = Described(filterDesc, "filterDesc");
    Require(filter.view.rank == 4, Fault::kBadParam, "filterDesc", "is not of 4 dimensions");
    Put(dataType, filter.type);
    Put(format, filter.format);
    int* const dims[] = {k, c, h, w};
    for (int i = 0; i < 4; ++i) Put(dims[i], static_cast<int>(filter.view.dims[i]));
  });
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filterDesc,
                                         cudnnDataType_t dataType, cudnnTensorFormat_t format,
                                         int nbDims, const int filterDimA[]) {
  return CudnnCall(__func__, [&] {
    CheckRank(nbDims);
    SetFilter(filterDesc, dataType, format, ViewOfDims(nbDims, filterDimA));
  });
}

cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t filterDesc,
                                         int nbDimsRequested, cudnnDataType_t* dataType,
                                         cudnnTensorFormat_t* format, int* nbDims,
                                         int filterDimA[]) {
  return CudnnCall(__func__, [&] {
    const cudnnFilterStruct& filter = Described(filterDesc, "filterDesc");
    Require(nbDimsRequested > 0 && nbDimsRequested <= CUDNN_DIM_MAX, Fault::kBadParam,
            "nbDimsRequested", "is outside [1, CUDNN_DIM_MAX]");
    Put(dataType, filter.type);
    Put(format, filter.format);
    Put(nbDims, filter.view.rank);
    for (int i = 0; i < nbDimsRequested && i < filter.view.rank; ++i) {
      if (filterDimA != nullptr) filterDimA[i] = static_cast<int>(filter.view.dims[i]);
    }
  });
}

cudnnStatus_t cudnnGetFilterSizeInBytes(const cudnnFilterDescriptor_t filterDesc, size_t* size) {
  return CudnnCall(__func__, [&] {
    const cudnnFilterStruct& filter = Described(filterDesc, "filterDesc");
    Require(size != nullptr, Fault::kBadParam, "size", "is null");
    *size = static_cast<size_t>(filter.view.Extent()) * TypeBytes(filter.type);
  });
}

}  // extern "C"
