#include "transport/mpi/mpi_session.h"

#include <mpi.h>
#include <stdlib.h>

#include <exception>
#include <vector>

#include "base/log.h"
#include "transport/mpi/check.h"

namespace pd {
namespace {

constexpr int kMostConnected = 128;  // ranks
constexpr int kMessages = 4;         // to each peer: MPI deals them over the sockets in turn

// Opens all sockets between the ranks, each from the lower of the two. Open MPI opens them with the
// first messages, and if two ranks do so to each other at once with two sockets a pair, it now and
// then loses one, and what it gave that one with it (4.1.4).
void Connect() {
  int rank = 0, size = 0;
  PD_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  PD_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  if (size > kMostConnected) return;
  for (int peer = 0; peer < rank; ++peer) {
    for (int i = 0; i < kMessages; ++i) {
      PD_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
  }
  std::vector<MPI_Request> sends;
  for (int peer = rank + 1; peer < size; ++peer) {
    for (int i = 0; i < kMessages; ++i) {
      PD_MPI(MPI_Isend(nullptr, 0, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &sends.emplace_back()));
    }
  }
  PD_MPI(MPI_Waitall(static_cast<int>(sends.size()), sends.data(), MPI_STATUSES_IGNORE));
}

// Of the world, before MPI starts; 0 where the launcher does not tell.
int WorldSize() {
  const char* const text = getenv("OMPI_COMM_WORLD_SIZE");
  return text == nullptr ? 0 : atoi(text);
}

}  // namespace

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
  if (WorldSize() <= kMostConnected) setenv("OMPI_MCA_btl_tcp_links", "2", kKeep);
  setenv("OMPI_MCA_btl_tcp_sndbuf", "131072", kKeep);
  int provided = MPI_THREAD_SINGLE;
  PD_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided));
  PD_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  PD_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    Throw(ErrorCode::kComm, "MPI: expected thread level MPI_THREAD_SERIALIZED ({}), found {}",
          MPI_THREAD_SERIALIZED, provided);
  }
  Connect();
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
