#pragma once

#include <cstddef>
#include <span>

namespace pd {

/// Point-to-point messages between the workers of a run. Messages between one pair of workers with
/// one tag arrive in the order in which they were started (MPI's rule). Not thread-safe: one thread
/// at a time. A transport never waits: whoever needs a message polls, and may sleep in between.
class Transport {
 public:
  /// What the caller attached to a request when it started it.
  using Token = void*;
  struct Completion {
    Token token = nullptr;
    size_t bytes = 0;  ///< Received (or sent) length.
  };

  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Host that this worker runs on.
  virtual const char* host() const = 0;

  /// Whether messages may lie in the memory of a device (CUDA-aware MPI), not only in the host's.
  virtual bool takes_device_memory() const { return false; }

  /// Starts a send. `data` stays untouched until the completion is polled. Any length; zero is a
  /// message.
  virtual void StartSend(int peer, int tag, const void* data, size_t bytes, Token token) = 0;
  /// Starts a receive of a message of at most `max_bytes`; a longer one is an error (kComm).
  virtual void StartReceive(int peer, int tag, void* data, size_t max_bytes, Token token) = 0;
  /// Moves messages forward and reports finished requests, at most done.size(); returns how many.
  /// Allocates nothing once as many requests have been active as ever will be.
  virtual size_t Poll(std::span<Completion> done) = 0;

  /// Gives up this worker's requests that are not finished: their memory, which may go away, is
  /// neither read nor written any more, and they never complete. (MPI moves data only inside this
  /// process's calls, so there nothing is to be done.)
  virtual void Withdraw() {}

  /// Ends the whole job now with `status` (mpi: MPI_Abort); on loopback throws in every worker.
  [[noreturn]] virtual void Abort(int status) = 0;
};

}  // namespace pd
