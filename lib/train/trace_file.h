#pragma once

#include <string>
#include <vector>

#include "pipeline/comm.h"
#include "pipeline/trace.h"

namespace pd {

/// Nanoseconds to add to this rank's clock to get rank 0's, on every rank: the offset seen in the
/// fastest of some round trips. Every rank takes part.
int64_t ClockOffsetNs(Comm& comm);

/// A trace in Chrome's format (Perfetto, chrome://tracing): a process a rank, a track for its
/// computing and one for its messages. Written stretch by stretch, a line an event, so that a file
/// cut short still loads.
class TraceFile {
 public:
  /// `roles`: one a rank, "stage 0 replica 1". Only rank 0 writes.
  TraceFile(std::string path, const std::vector<std::string>& roles);

  /// Appends what all ranks recorded since the last call; `gathered` holds Pack of each rank.
  /// `prefix` stands before each slice's name: "evaluation forward 3".
  void Append(const std::vector<std::string>& gathered, std::string_view prefix);
  /// Closes the list. Throws kIo.
  void Close();

  /// This rank's slices, on rank 0's clock, as bytes; empties both.
  static std::string Pack(Trace& compute, Trace& messages, int64_t offset_ns);

 private:
  void Write(const std::string& text);
  std::string path_;
};

}  // namespace pd
