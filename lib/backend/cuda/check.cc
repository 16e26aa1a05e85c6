#include "backend/cuda/check.h"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"

namespace pd::cuda {
namespace {

/// The function's name of a call's text.
std::string_view NameOf(const char* call) {
  const std::string_view text = call;
  return text.substr(0, text.find('('));
}

/// Empty when nothing is wrong.
std::string Failure(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return {};
  // The error is told here; the next check of a launch must not find it again.
  static_cast<void>(cudaGetLastError());
  return fmt::format("{}: {} ({})", NameOf(call), cudaGetErrorString(status),
                     cudaGetErrorName(status));
}

std::string Failure(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  std::array<char, 512> detail = {};
  cudnnGetLastErrorString(detail.data(), detail.size() - 1);
  const std::string_view said(detail.data());
  return fmt::format("{}: {}{}{}", NameOf(call), cudnnGetErrorString(status),
                     said.empty() ? "" : ": ", said.substr(0, said.find('\n')));
}

std::string Failure(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fmt::format("{}: {}", NameOf(call), cublasGetStatusString(status));
}

template <typename Status>
void ThrowIfFailed(Status status, const char* call) {
  const std::string failure = Failure(status, call);
  if (!failure.empty()) Throw(ErrorCode::kDevice, "{}", failure);
}

template <typename Status>
void Tell(Status status, const char* call) noexcept {
  try {
    const std::string failure = Failure(status, call);
    // While an exception is on its way, its text says what went wrong first: a device that failed
    // fails every call that comes after.
    if (!failure.empty() && std::uncaught_exceptions() == 0) Warn("{}", failure);
  } catch (const std::exception&) {  // no memory for the text: nothing more to be done
  }
}

}  // namespace

void Check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) ThrowIfFailed(status, call);
}
void Check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) ThrowIfFailed(status, call);
}
void Check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) ThrowIfFailed(status, call);
}

void LogIfFailed(cudaError_t status, const char* call) noexcept { Tell(status, call); }
void LogIfFailed(cudnnStatus_t status, const char* call) noexcept { Tell(status, call); }
void LogIfFailed(cublasStatus_t status, const char* call) noexcept { Tell(status, call); }

}  // namespace pd::cuda
