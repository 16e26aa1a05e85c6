// cuDNN's convolution: lists of algorithms, workspaces, and the three passes.
//
// Lists are unkind, within the documentation: algorithms that do not support the convolution come
// first (their status says so), then non-deterministic ones, then the rest with the largest
// workspace first; there are always fewer entries than the MaxCount functions announce.

#include <cudnn.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "convolution.h"

namespace cuda_emulator::library {
namespace {

std::vector<Algorithm> Listed(Pass pass, const Convolution& convolution) {
  std::vector<Algorithm> list;
  for (int id = 0; id < AlgorithmCount(pass); ++id) {
    list.push_back(DescribeAlgorithm(pass, id, convolution));
  }
  std::stable_sort(list.begin(), list.end(), [](const Algorithm& a, const Algorithm& b) {
    if (a.supported != b.supported) return !a.supported;
    if (a.deterministic != b.deterministic) return !a.deterministic;
    return a.workspace_bytes > b.workspace_bytes;
  });
  return list;
}

int MaxCount(Pass pass) { return AlgorithmCount(pass) + 2; }

// Fills the caller's cudnnConvolution…AlgoPerf_t array. `limit` leaves out what needs more
// workspace.
template <class Perf>
void List(Pass pass, const Convolution& convolution, int requested, int* returned, Perf* results,
          size_t limit = ~size_t{0}) {
  Require(requested > 0, Fault::kBadParam, "requestedAlgoCount", "is zero or negative");
  RequireHost(returned, "returnedAlgoCount");
  RequireHost(results, "perfResults");
  *returned = 0;
  for (const Algorithm& algorithm : Listed(pass, convolution)) {
    if (*returned == requested) return;
    if (algorithm.supported && algorithm.workspace_bytes > limit) continue;
    Perf& perf = results[*returned];
    std::memset(&perf, 0, sizeof perf);
    perf.algo = static_cast<decltype(perf.algo)>(algorithm.id);
    perf.status = algorithm.supported ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    perf.time = algorithm.supported ? 0.125F * static_cast<float>(*returned + 1) : -1.0F;
    perf.memory = algorithm.workspace_bytes;
    perf.determinism = algorithm.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
    perf.mathType = convolution.math;
    ++*returned;
  }
}

Algorithm Chosen(Pass pass, int id, const Convolution& convolution) {
  const Algorithm algorithm = DescribeAlgorithm(pass, id, convolution);
  Require(algorithm.supported, Fault::kNotSupported, "algo", "does not support this convolution");
  return algorithm;
}

// Algorithms other than the plain ones accumulate in f32, so that a change of algorithm shows.
Arithmetic ArithmeticOf(Pass pass, const Algorithm& algorithm, const Convolution& convolution) {
  Arithmetic arithmetic;
  arithmetic.tf32 = convolution.math != CUDNN_FMA_MATH && Tf32Enabled();
  const int plain = pass == Pass::kForward ? CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM : 1;
  arithmetic.in_float = algorithm.id != plain;
  if (!algorithm.deterministic) arithmetic.seed = NextRandom();
  return arithmetic;
}

void UseWorkspace(Operation& operation, const Algorithm& algorithm, void* workspace, size_t bytes) {
  Require(bytes >= algorithm.workspace_bytes, Fault::kBadParam, "workSpaceSizeInBytes",
          "is less than the algorithm's workspace");
  Require(workspace != nullptr || bytes == 0, Fault::kBadParam, "workSpace", "is null");
  operation.UseWorkspace(workspace, bytes, "workSpace");
}

// A Find…Ex function: runs all algorithms, so it overwrites the output with arbitrary values.
void Trial(Operation& operation, float* output, const TensorView& view, void* workspace,
           size_t bytes) {
  operation.UseWorkspace(workspace, bytes, "workSpace");
  operation.Launch([=] {
    ForEachIndex<1>(view.rank, view.dims, {view.strides},
                    [&](const int64_t* at) { FillWithNan(&output[at[0]], sizeof(float)); });
  });
}

void PutMaxCount(cudnnContext* handle, Pass pass, int* count) {
  const HandleUse use = Use(handle);
  RequireHost(count, "count");
  *count = MaxCount(pass);
}

}  // namespace
}  // namespace cuda_emulator::library

using namespace cuda_emulator;
using namespace cuda_emulator::library;

extern "C" {

// ---- Forward --------------------------------------------------------------------------------

cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  return CudnnCall(__func__, [&] { PutMaxCount(handle, Pass::kForward, count); });
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t srcDesc,
    const cudnnFilterDescriptor_t filterDesc, const cudnnConvolutionDescriptor_t convDesc,
    const cudnnTensorDescriptor_t destDesc, const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionFwdAlgoPerf_t* perfResults) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    List(Pass::kForward, {srcDesc, filterDesc, convDesc, destDesc}, requestedAlgoCount,
         returnedAlgoCount, perfResults);
  });
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const cudnnFilterDescriptor_t wDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t yDesc,
    const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionFwdAlgoPerf_t* perfResults) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    List(Pass::kForward, {xDesc, wDesc, convDesc, yDesc}, requestedAlgoCount, returnedAlgoCount,
         perfResults);
  });
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const void* x,
    const cudnnFilterDescriptor_t wDesc, const void* w, const cudnnConvolutionDescriptor_t convDesc,
    const cudnnTensorDescriptor_t yDesc, void* y, const int requestedAlgoCount,
    int* returnedAlgoCount, cudnnConvolutionFwdAlgoPerf_t* perfResults, void* workSpace,
    size_t workSpaceSizeInBytes) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const Convolution convolution(xDesc, wDesc, convDesc, yDesc);
    List(Pass::kForward, convolution, requestedAlgoCount, returnedAlgoCount, perfResults,
         workSpaceSizeInBytes);
    Operation operation(use.Stream(), "cudnnFindConvolutionForwardAlgorithmEx");
    operation.In(x, convolution.x, "x");
    operation.In(w, convolution.w, "w");
    Trial(operation, operation.Out(y, convolution.y, "y"), convolution.y, workSpace,
          workSpaceSizeInBytes);
  });
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const cudnnFilterDescriptor_t wDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t yDesc,
    cudnnConvolutionFwdAlgo_t algo, size_t* sizeInBytes) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    RequireHost(sizeInBytes, "sizeInBytes");
    *sizeInBytes = Chosen(Pass::kForward, algo, {xDesc, wDesc, convDesc, yDesc}).workspace_bytes;
  });
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t xDesc, const void* x,
                                      const cudnnFilterDescriptor_t wDesc, const void* w,
                                      const cudnnConvolutionDescriptor_t convDesc,
                                      cudnnConvolutionFwdAlgo_t algo, void* workSpace,
                                      size_t workSpaceSizeInBytes, const void* beta,
                                      const cudnnTensorDescriptor_t yDesc, void* y) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const Convolution convolution(xDesc, wDesc, convDesc, yDesc);
    const Algorithm algorithm = Chosen(Pass::kForward, algo, convolution);
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnConvolutionForward");
    const float* x_data = operation.In(x, convolution.x, "x");
    const float* w_data = operation.In(w, convolution.w, "w");
    float* y_data = operation.Out(y, convolution.y, "y");
    UseWorkspace(operation, algorithm, workSpace, workSpaceSizeInBytes);
    const Arithmetic arithmetic = ArithmeticOf(Pass::kForward, algorithm, convolution);
    operation.Launch(
        [=] { ConvolveForward(convolution, arithmetic, blend, x_data, w_data, y_data); });
  });
}

// ---- Backward data --------------------------------------------------------------------------

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  return CudnnCall(__func__, [&] { PutMaxCount(handle, Pass::kBackwardData, count); });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t filterDesc,
    const cudnnTensorDescriptor_t diffDesc, const cudnnConvolutionDescriptor_t convDesc,
    const cudnnTensorDescriptor_t gradDesc, const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionBwdDataAlgoPerf_t* perfResults) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    List(Pass::kBackwardData, {gradDesc, filterDesc, convDesc, diffDesc}, requestedAlgoCount,
         returnedAlgoCount, perfResults);
  });
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc, const cudnnTensorDescriptor_t dyDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t dxDesc,
    const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionBwdDataAlgoPerf_t* perfResults) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    List(Pass::kBackwardData, {dxDesc, wDesc, convDesc, dyDesc}, requestedAlgoCount,
         returnedAlgoCount, perfResults);
  });
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc, const void* w,
    const cudnnTensorDescriptor_t dyDesc, const void* dy,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t dxDesc, void* dx,
    const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionBwdDataAlgoPerf_t* perfResults, void* workSpace, size_t workSpaceSizeInBytes) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const Convolution convolution(dxDesc, wDesc, convDesc, dyDesc);
    List(Pass::kBackwardData, convolution, requestedAlgoCount, returnedAlgoCount, perfResults,
         workSpaceSizeInBytes);
    Operation operation(use.Stream(), "cudnnFindConvolutionBackwardDataAlgorithmEx");
    operation.In(w, convolution.w, "w");
    operation.In(dy, convolution.y, "dy");
    Trial(operation, operation.Out(dx, convolution.x, "dx"), convolution.x, workSpace,
          workSpaceSizeInBytes);
  });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc, const cudnnTensorDescriptor_t dyDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnTensorDescriptor_t dxDesc,
    cudnnConvolutionBwdDataAlgo_t algo, size_t* sizeInBytes) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    RequireHost(sizeInBytes, "sizeInBytes");
    *sizeInBytes =
        Chosen(Pass::kBackwardData, algo, {dxDesc, wDesc, convDesc, dyDesc}).workspace_bytes;
  });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t wDesc, const void* w,
                                           const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                           const cudnnConvolutionDescriptor_t convDesc,
                                           cudnnConvolutionBwdDataAlgo_t algo, void* workSpace,
                                           size_t workSpaceSizeInBytes, const void* beta,
                                           const cudnnTensorDescriptor_t dxDesc, void* dx) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const Convolution convolution(dxDesc, wDesc, convDesc, dyDesc);
    const Algorithm algorithm = Chosen(Pass::kBackwardData, algo, convolution);
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnConvolutionBackwardData");
    const float* w_data = operation.In(w, convolution.w, "w");
    const float* dy_data = operation.In(dy, convolution.y, "dy");
    float* dx_data = operation.Out(dx, convolution.x, "dx");
    UseWorkspace(operation, algorithm, workSpace, workSpaceSizeInBytes);
    const Arithmetic arithmetic = ArithmeticOf(Pass::kBackwardData, algorithm, convolution);
    operation.Launch(
        [=] { ConvolveBackwardData(convolution, arithmetic, blend, w_data, dy_data, dx_data); });
  });
}

// ---- Backward filter ------------------------------------------------------------------------

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t handle, int* count) {
  return CudnnCall(__func__, [&] { PutMaxCount(handle, Pass::kBackwardFilter, count); });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t srcDesc,
    const cudnnTensorDescriptor_t diffDesc, const cudnnConvolutionDescriptor_t convDesc,
    const cudnnFilterDescriptor_t gradDesc, const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionBwdFilterAlgoPerf_t* perfResults) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    List(Pass::kBackwardFilter, {srcDesc, gradDesc, convDesc, diffDesc}, requestedAlgoCount,
         returnedAlgoCount, perfResults);
  });
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t dyDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnFilterDescriptor_t dwDesc,
    const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionBwdFilterAlgoPerf_t* perfResults) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    List(Pass::kBackwardFilter, {xDesc, dwDesc, convDesc, dyDesc}, requestedAlgoCount,
         returnedAlgoCount, perfResults);
  });
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const void* x,
    const cudnnTensorDescriptor_t dyDesc, const void* y,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnFilterDescriptor_t dwDesc, void* dw,
    const int requestedAlgoCount, int* returnedAlgoCount,
    cudnnConvolutionBwdFilterAlgoPerf_t* perfResults, void* workSpace,
    size_t workSpaceSizeInBytes) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const Convolution convolution(xDesc, dwDesc, convDesc, dyDesc);
    List(Pass::kBackwardFilter, convolution, requestedAlgoCount, returnedAlgoCount, perfResults,
         workSpaceSizeInBytes);
    Operation operation(use.Stream(), "cudnnFindConvolutionBackwardFilterAlgorithmEx");
    operation.In(x, convolution.x, "x");
    operation.In(y, convolution.y, "dy");
    Trial(operation, operation.Out(dw, convolution.w, "dw"), convolution.w, workSpace,
          workSpaceSizeInBytes);
  });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t dyDesc,
    const cudnnConvolutionDescriptor_t convDesc, const cudnnFilterDescriptor_t gradDesc,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t* sizeInBytes) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    RequireHost(sizeInBytes, "sizeInBytes");
    *sizeInBytes =
        Chosen(Pass::kBackwardFilter, algo, {xDesc, gradDesc, convDesc, dyDesc}).workspace_bytes;
  });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t xDesc, const void* x,
                                             const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                             const cudnnConvolutionDescriptor_t convDesc,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void* workSpace,
                                             size_t workSpaceSizeInBytes, const void* beta,
                                             const cudnnFilterDescriptor_t dwDesc, void* dw) {
  return CudnnCall(__func__, [&] {
    const HandleUse use = Use(handle);
    const Convolution convolution(xDesc, dwDesc, convDesc, dyDesc);
    const Algorithm algorithm = Chosen(Pass::kBackwardFilter, algo, convolution);
    const Blend blend = HostBlend(alpha, beta);
    Operation operation(use.Stream(), "cudnnConvolutionBackwardFilter");
    const float* x_data = operation.In(x, convolution.x, "x");
    const float* dy_data = operation.In(dy, convolution.y, "dy");
    float* dw_data = operation.Out(dw, convolution.w, "dw");
    UseWorkspace(operation, algorithm, workSpace, workSpaceSizeInBytes);
    const Arithmetic arithmetic = ArithmeticOf(Pass::kBackwardFilter, algorithm, convolution);
    operation.Launch(
        [=] { ConvolveBackwardFilter(convolution, arithmetic, blend, x_data, dy_data, dw_data); });
  });
}

}  // extern "C"
