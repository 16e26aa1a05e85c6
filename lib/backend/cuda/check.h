#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

namespace pd::cuda {

// Every call of the CUDA libraries goes through one of these. They throw kDevice with the
// function's name and the library's words; the Log… form is for destructors.

void Check(cudaError_t status, const char* call);
void Check(cudnnStatus_t status, const char* call);
void Check(cublasStatus_t status, const char* call);

void LogIfFailed(cudaError_t status, const char* call) noexcept;
void LogIfFailed(cudnnStatus_t status, const char* call) noexcept;
void LogIfFailed(cublasStatus_t status, const char* call) noexcept;

}  // namespace pd::cuda

#define PD_CUDA(call) ::pd::cuda::Check((call), #call)
#define PD_CUDNN(call) ::pd::cuda::Check((call), #call)
#define PD_CUBLAS(call) ::pd::cuda::Check((call), #call)
#define PD_CUDA_LOG(call) ::pd::cuda::LogIfFailed((call), #call)
