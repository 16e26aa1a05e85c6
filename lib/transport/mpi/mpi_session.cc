#include "transport/mpi/mpi_session.h"

#include <mpi.h>
#include <stdlib.h>

#include <exception>

#include "base/log.h"
#include "transport/mpi/check.h"

namespace pd {

std::string MpiLibraryName() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  // "Open MPI v4.1.4, package: …, …"
  std::string name(text, static_cast<size_t>(length));
  name = name.substr(0, name.find(','));
  const size_t v = name.find(" v");
  return v == std::string::npos ? name : name.erase(v + 1, 1);
}

MpiSession::MpiSession() : exceptions_at_start_(std::uncaught_exceptions()) {
  constexpr int kKeep = 0;  // What mpirun --mca or the user set stays.
  setenv("OMPI_MCA_btl_tcp_links", "2", kKeep);
  setenv("OMPI_MCA_btl_tcp_sndbuf", "524288", kKeep);
  int provided = MPI_THREAD_SINGLE;
  PD_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
  PD_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  PD_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    Throw(ErrorCode::kComm, "MPI: expected thread level MPI_THREAD_SERIALIZED ({}), found {}",
          MPI_THREAD_SERIALIZED, provided);
  }
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    MPI_Abort(MPI_COMM_WORLD, 1);
    return;
  }
  const int code = MPI_Finalize();
  if (code != MPI_SUCCESS) Warn("MPI_Finalize failed with code {}", code);
}

void MpiSession::Abort(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  Throw(ErrorCode::kComm, "MPI_Abort returned");
}

}  // namespace pd
