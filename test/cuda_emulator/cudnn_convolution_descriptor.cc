// cuDNN's convolution descriptors and output dimensions.

#include "cudnn_common.h"

namespace cuda_emulator::library {
namespace {

// Setting a descriptor gives it default math and one group again.
void SetConvolution(cudnnConvolutionStruct* descriptor, cudnnConvolutionStruct convolution) {
  for (int i = 0; i < convolution.spatial_rank; ++i) {
    const Window& window = convolution.windows[i];
    Require(window.padding >= 0, Fault::kBadParam, "padding", "is negative");
    Require(window.stride > 0, Fault::kBadParam, "stride", "is zero or negative");
    Require(window.dilation > 0, Fault::kBadParam, "dilation", "is zero or negative");
  }
  Require(convolution.mode == CUDNN_CONVOLUTION || convolution.mode == CUDNN_CROSS_CORRELATION,
          Fault::kBadParam, "mode", "is no cudnnConvolutionMode_t");
  Require(ValidDataType(convolution.compute_type), Fault::kBadParam, "computeType", "is no type");
  convolution.set = true;
  Writable(descriptor, "convDesc") = convolution;
}

// A descriptor that was set, to change: a change before it is set would be lost or undefined.
cudnnConvolutionStruct& Changeable(cudnnConvolutionStruct* descriptor) {
  Described(descriptor, "convDesc");
  return *descriptor;
}

void OutputDims(const cudnnConvolutionStruct* descriptor, const cudnnTensorStruct* x_descriptor,
                const cudnnFilterStruct* w_descriptor, int64_t* dims, int* rank) {
  const cudnnConvolutionStruct& convolution = Described(descriptor, "convDesc");
  const TensorView& x = Described(x_descriptor, "inputTensorDesc").view;
  const TensorView& w = Described(w_descriptor, "filterDesc").view;
  Require(x.rank == w.rank && x.rank == convolution.spatial_rank + 2, Fault::kBadParam,
          "descriptors", "differ in their number of dimensions");
  Require(x.dims[1] == w.dims[1] * convolution.groups, Fault::kBadParam, "filterDesc",
          "has another number of input channels than the input over groupCount");
  dims[0] = x.dims[0];
  dims[1] = w.dims[0];
  for (int i = 2; i < x.rank; ++i) {
    Window window = convolution.windows[i - 2];
    window.size = w.dims[i];
    dims[i] = window.Outputs(x.dims[i]);
    Require(dims[i] > 0, Fault::kBadParam, "filterDesc", "is larger than the padded input");
  }
  *rank = x.rank;
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convDesc) {
  return CreateDescriptor(__func__, convDesc);
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convDesc) {
  return DestroyDescriptor(__func__, convDesc);
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convDesc, int pad_h,
                                              int pad_w, int u, int v, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t computeType) {
  return CudnnCall(__func__, [&] {
    cudnnConvolutionStruct convolution;
    convolution.spatial_rank = 2;
    convolution.windows[0] = {1, pad_h, u, dilation_h};
    convolution.windows[1] = {1, pad_w, v, dilation_w};
    convolution.mode = mode;
    convolution.compute_type = computeType;
    SetConvolution(convDesc, convolution);
  });
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convDesc,
                                              int arrayLength, const int padA[],
                                              const int filterStrideA[], const int dilationA[],
                                              cudnnConvolutionMode_t mode,
                                              cudnnDataType_t computeType) {
  return CudnnCall(__func__, [&] {
    Require(arrayLength > 0, Fault::kBadParam, "arrayLength", "is zero or negative");
    Require(arrayLength <= CUDNN_DIM_MAX - 2, Fault::kNotSupported, "arrayLength",
            "is more than CUDNN_DIM_MAX - 2");
    RequireHost(padA, "padA");
    RequireHost(filterStrideA, "filterStrideA");
    RequireHost(dilationA, "dilationA");
    cudnnConvolutionStruct convolution;
    convolution.spatial_rank = arrayLength;
    for (int i = 0; i < arrayLength; ++i) {
      convolution.windows[i] = {1, padA[i], filterStrideA[i], dilationA[i]};
    }
    convolution.mode = mode;
    convolution.compute_type = computeType;
    SetConvolution(convDesc, convolution);
  });
}

cudnnStatus_t cudnnGetConvolution2dDescriptor(const cudnnConvolutionDescriptor_t convDesc,
                                              int* pad_h, int* pad_w, int* u, int* v,
                                              int* dilation_h, int* dilation_w,
                                              cudnnConvolutionMode_t* mode,
                                              cudnnDataType_t* computeType) {
  return CudnnCall(__func__, [&] {
    const cudnnConvolutionStruct& convolution = Described(convDesc, "convDesc");
    Require(convolution.spatial_rank == 2, Fault::kBadParam, "convDesc", "is not 2D");
    Put(pad_h, static_cast<int>(convolution.windows[0].padding));
    Put(pad_w, static_cast<int>(convolution.windows[1].padding));
    Put(u, static_cast<int>(convolution.windows[0].stride));
    Put(v, static_cast<int>(convolution.windows[1].stride));
    Put(dilation_h, static_cast<int>(convolution.windows[0].dilation));
    Put(dilation_w, static_cast<int>(convolution.windows[1].dilation));
    Put(mode, convolution.mode);
    Put(computeType, convolution.compute_type);
  });
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convDesc,
                                          cudnnMathType_t mathType) {
  return CudnnCall(__func__, [&] {
    Require(mathType >= CUDNN_DEFAULT_MATH && mathType <= CUDNN_FMA_MATH, Fault::kBadParam,
            "mathType", "is no cudnnMathType_t");
    Changeable(convDesc).math_type = mathType;
  });
}

cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t convDesc,
                                          cudnnMathType_t* mathType) {
  return CudnnCall(__func__, [&] { Put(mathType, Described(convDesc, "convDesc").math_type); });
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convDesc, int groupCount) {
  return CudnnCall(__func__, [&] {
    Require(groupCount > 0, Fault::kBadParam, "groupCount", "is zero or negative");
    Changeable(convDesc).groups = groupCount;
  });
}

cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t convDesc,
                                            int* groupCount) {
  return CudnnCall(__func__, [&] { Put(groupCount, Described(convDesc, "convDesc").groups); });
}

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(const cudnnConvolutionDescriptor_t convDesc,
                                                    const cudnnTensorDescriptor_t inputTensorDesc,
                                                    const cudnnFilterDescriptor_t filterDesc,
                                                    int* n, int* c, int* h, int* w) {
  return CudnnCall(__func__, [&] {
    int64_t dims[kMaxRank] = {};
    int rank = 0;
    OutputDims(convDesc, inputTensorDesc, filterDesc, dims, &rank);
    Require(rank == 4, Fault::kBadParam, "convDesc", "is not 2D");
    int* const results[] = {n, c, h, w};
    for (int i = 0; i < 4; ++i) {
      RequireHost(results[i], "n, c, h or w");
      *results[i] = static_cast<int>(dims[i]);
    }
  });
}

cudnnStatus_t cudnnGetConvolutionNdForwardOutputDim(const cudnnConvolutionDescriptor_t convDesc,
                                                    const cudnnTensorDescriptor_t inputTensorDesc,
                                                    const cudnnFilterDescriptor_t filterDesc,
                                                    int nbDims, int tensorOuputDimA[]) {
  return CudnnCall(__func__, [&] {
    int64_t dims[kMaxRank] = {};
    int rank = 0;
    OutputDims(convDesc, inputTensorDesc, filterDesc, dims, &rank);
    Require(nbDims == rank, Fault::kBadParam, "nbDims", "is not the input's");
    RequireHost(tensorOuputDimA, "tensorOuputDimA");
    for (int i = 0; i < rank; ++i) tensorOuputDimA[i] = static_cast<int>(dims[i]);
  });
}

}  // extern "C"
