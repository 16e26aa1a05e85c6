#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "transport/mpi/mpi_session.h"
#include "transport/transport.h"

namespace pd {

/// Messages over MPI, on a communicator of its own. Creating and destroying one is collective.
/// After an error the transport is of no more use: the sender of a refused message may wait for
/// ever, so end the job.
class MpiTransport : public Transport {
 public:
  static constexpr size_t kDefaultPieceBytes = size_t{1} << 30;

  /// `piece_bytes`: the most that one MPI message carries, the same on all ranks, in [1, 2^31 − 1]
  /// because MPI counts with int.
  explicit MpiTransport(MpiSession& session, size_t piece_bytes = kDefaultPieceBytes);
  ~MpiTransport() override;

  int rank() const override;
  int size() const override;
  const char* host() const override;
  /// This worker's place among the workers of its machine, and their number.
  int local_rank() const;
  int local_size() const;

  void StartSend(int peer, int tag, const void* data, size_t bytes, Token token) override;
  void StartReceive(int peer, int tag, void* data, size_t max_bytes, Token token) override;
  size_t Poll(std::span<Completion> done) override;
  [[noreturn]] void Abort(int status) override;

 private:
  struct State;  // Keeps MPI's header out of this one.
  std::unique_ptr<State> state_;
};

}  // namespace pd
