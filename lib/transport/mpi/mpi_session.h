#pragma once

#include <string>

namespace pd {

/// "Open MPI 4.1.4": the MPI library at run time; needs no session.
std::string MpiLibraryName();

/// MPI from start to end of the process: main()'s first object. Transports must be gone before it.
class MpiSession {
 public:
  /// Asks for MPI_THREAD_SERIALIZED and checks that it got it; errors come back as codes from here
  /// on. Open MPI's TCP transport may open two sockets a pair (btl_tcp_links=2 unless the
  /// environment or mpirun --mca says otherwise): with one it is half as fast when both directions
  /// carry data. And their send buffers are kept small (btl_tcp_sndbuf): a full socket's messages
  /// to one host would keep those to another from the link, whose window has shrunk while it idled.
  /// Up to 128 ranks all of these sockets are opened here, one after another; more ranks have one
  /// socket a pair.
  MpiSession();
  /// Ends MPI in agreement with all ranks; while an exception unwinds, ends the whole job instead,
  /// since the other ranks would wait for this one for ever.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// Ends all ranks now; mpirun exits with `status`.
  [[noreturn]] void Abort(int status);

 private:
  int exceptions_at_start_;
};

}  // namespace pd
