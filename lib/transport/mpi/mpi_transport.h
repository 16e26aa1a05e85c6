#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "transport/mpi/mpi_session.h"
#include "transport/transport.h"

namespace pd {

/// The most that one MPI message carries, the same on all ranks, in [1, 2^31 − 1] because MPI
/// counts with int. Longer messages go in pieces of that length.
struct MpiPieces {
  size_t near_bytes = size_t{1} << 30;  ///< To a rank on the same host.
  /// To another host: less than what Open MPI's TCP transport sends without asking the receiver
  /// first, which is 64 KiB with a header (btl_tcp_eager_limit).
  size_t far_bytes = size_t{60} << 10;
};

/// Messages over MPI, on communicators of its own. Creating and destroying one is collective.
/// After an error the transport is of no more use: the sender of a refused message may wait for
/// ever, so end the job.
class MpiTransport : public Transport {
 public:
  explicit MpiTransport(MpiSession& session, const MpiPieces& pieces = {});
  ~MpiTransport() override;

  int rank() const override;
  int size() const override;
  const char* host() const override;
  /// As the MPI library says at run time (MPIX_Query_cuda_support); false where it has no such
  /// question.
  bool takes_device_memory() const override;
  /// This worker's place among the workers of its machine, and their number.
  int local_rank() const;
  int local_size() const;

  /// Tags up to half of MPI's largest. A send in pieces is complete only when its receive was
  /// started, and takes little of the receiver's memory before.
  void StartSend(int peer, int tag, const void* data, size_t bytes, Token token) override;
  void StartReceive(int peer, int tag, void* data, size_t max_bytes, Token token) override;
  size_t Poll(std::span<Completion> done) override;
  [[noreturn]] void Abort(int status) override;

 private:
  struct State;  // Keeps MPI's header out of this one.
  std::unique_ptr<State> state_;
};

}  // namespace pd
