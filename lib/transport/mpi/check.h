#pragma once

#include <mpi.h>

#include <string_view>

#include "base/error.h"

namespace pd {

/// Throws kComm with MPI's own text unless `code` is MPI_SUCCESS. Needs MPI_ERRORS_RETURN.
inline void CheckMpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  Throw(ErrorCode::kComm, "{}: {}", call, std::string_view(text, static_cast<size_t>(length)));
}

}  // namespace pd

#define PD_MPI(call) ::pd::CheckMpi((call), #call)
