#include "schedule/trace.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

namespace pd {

std::string TraceHead(const std::vector<std::string>& roles) {
  std::string text = "[\n";
  bool first = true;
  for (size_t r = 0; r < roles.size(); ++r) {
    const auto name = [&](const char* what, int track, const std::string& value) {
      const nlohmann::ordered_json event = {
          {"ph", "M"}, {"name", what}, {"pid", r}, {"tid", track}, {"args", {{"name", value}}}};
      text += (first ? "" : ",\n") + event.dump();
      first = false;
    };
    name("process_name", kComputeTrack, fmt::format("rank {}: {}", r, roles[r]));
    name("thread_name", kComputeTrack, "compute");
    name("thread_name", kMessagesTrack, "messages");
  }
  return text;
}

void AppendTraceSlice(std::string& text, size_t rank, int track, std::string_view prefix,
                      const TraceSlice& slice) {
  const std::string_view kind = NameOf(slice.kind);
  fmt::format_to(std::back_inserter(text),
                 ",\n{{\"ph\":\"X\",\"name\":\"{}{} {}\",\"cat\":\"{}{}\",\"pid\":{},\"tid\":{},"
                 "\"ts\":{:.3f},\"dur\":{:.3f}}}",
                 prefix, kind, slice.minibatch + 1, prefix, kind, rank, track,
                 static_cast<double>(slice.begin_ns) * 1e-3,
                 static_cast<double>(slice.end_ns - slice.begin_ns) * 1e-3);
}

}  // namespace pd
