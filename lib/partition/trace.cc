#include "schedule/trace.h"

#include <fmt/format.h>

#include "partition/simulator.h"

namespace pd {

std::string FormatTrace(const SimulatedRun& run, int ranks) {
  std::vector<std::string> roles(static_cast<size_t>(ranks), "idle");
  for (const auto& worker : run.workers) {
    roles[static_cast<size_t>(worker.id)] =
        fmt::format("stage {} replica {}", worker.stage, worker.replica);
  }
  std::string text = TraceHead(roles);
  for (const auto& worker : run.workers) {
    const auto id = static_cast<size_t>(worker.id);
    for (const TraceSlice& s : worker.compute) AppendTraceSlice(text, id, kComputeTrack, "", s);
    for (const TraceSlice& s : worker.messages) AppendTraceSlice(text, id, kMessagesTrack, "", s);
  }
  return text + std::string(kTraceEnd);
}

}  // namespace pd
