#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"

namespace pd {

/// What a worker did when, for a trace. In a run clocks are the machine's monotonic one; in a
/// simulation they start at 0.
struct TraceSlice {
  ActionKind kind = ActionKind::kForward;
  int64_t minibatch = -1;  ///< Over the whole run.
  int64_t begin_ns = 0, end_ns = 0;
};

/// The tracks of a worker.
inline constexpr int kComputeTrack = 0, kMessagesTrack = 1;

/// The start of a trace in Chrome's format (Perfetto, chrome://tracing), a line an event: the names
/// of the ranks' processes and of their tracks. `roles`: one a rank, at least one.
std::string TraceHead(const std::vector<std::string>& roles);
/// Appends a slice, named by action and minibatch (from 1); `prefix` stands before its name. A file
/// cut short after any line still loads.
void AppendTraceSlice(std::string& text, size_t rank, int track, std::string_view prefix,
                      const TraceSlice& slice);
inline constexpr std::string_view kTraceEnd = "\n]\n";

}  // namespace pd
