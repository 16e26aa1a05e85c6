#pragma once

#include <cstddef>
#include <memory>

#include "transport/transport.h"

namespace pd {

/// Transports between the threads of one process, one a worker: for tests, and for runs without
/// MPI. Each transport belongs to one thread at a time; different ones may be used at the same
/// time.
class LoopbackHub {
 public:
  static constexpr size_t kDefaultEagerBytes = 4096;

  /// Copies between any two memories of the workers, as std::memcpy does for the host's.
  using Copy = void (*)(void* to, const void* from, size_t bytes);

  /// Messages below `eager_bytes` are copied when their send starts, and are complete at once;
  /// longer ones stay with the sender until they are received, as MPI's rendezvous does. 0: no send
  /// completes before its receive. Every request in flight takes `eager_bytes` of memory.
  /// `copy`: for messages in the memory of devices too; null: in the host's only.
  explicit LoopbackHub(int size, size_t eager_bytes = kDefaultEagerBytes, Copy copy = nullptr);
  ~LoopbackHub();

  /// The transport of worker `rank`; lives as long as the hub.
  Transport& transport(int rank);

 private:
  class Worker;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pd
