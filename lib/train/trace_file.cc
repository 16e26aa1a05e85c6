#include "train/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"

namespace pd {
namespace {

struct PackedSlice {
  TraceSlice slice;
  int64_t track = 0;
};

}  // namespace

int64_t ClockOffsetNs(Comm& comm) {
  constexpr int kTrips = 8;
  int64_t offset = 0;
  for (int r = 1; r < comm.size(); ++r) {
    if (comm.rank() != 0 && comm.rank() != r) continue;
    const int peer = comm.rank() == 0 ? r : 0;
    int64_t fastest = INT64_MAX;
    for (int trip = 0; trip < kTrips; ++trip) {
      int64_t mine = NowNs();
      int64_t theirs = 0;
      Ticket sent, received;
      const auto exchange = [&](bool send) {
        if (send) {
          comm.Send(peer, kTagControl, &mine, sizeof mine, sent);
          comm.Wait(sent, {.action = "compare clocks", .peer = peer});
        } else {
          comm.Receive(peer, kTagControl, &theirs, sizeof theirs, received);
          comm.Wait(received, {.action = "compare clocks", .peer = peer});
        }
      };
      // The other rank asks, rank 0 answers with its time.
      if (comm.rank() == 0) {
        exchange(false);
        mine = NowNs();
        exchange(true);
        continue;
      }
      exchange(true);
      exchange(false);
      const int64_t back = NowNs();
      if (back - mine < fastest) {
        fastest = back - mine;
        offset = theirs - (mine + back) / 2;
      }
    }
  }
  return offset;
}

TraceFile::TraceFile(std::string path, const std::vector<std::string>& roles)
    : path_(std::move(path)) {
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) Throw(ErrorCode::kIo, "{}: cannot create: {}", path_, std::strerror(errno));
  ::close(fd);
  Write(TraceHead(roles));
}

void TraceFile::Write(const std::string& text) {
  const int fd = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) Throw(ErrorCode::kIo, "{}: cannot open: {}", path_, std::strerror(errno));
  try {
    WriteAll(fd, text, path_);
  } catch (const Error&) {
    ::close(fd);
    throw;
  }
  ::close(fd);
}

std::string TraceFile::Pack(Trace& compute, Trace& messages, int64_t offset_ns) {
  std::string bytes;
  for (const auto& [trace, track] :
       {std::pair(&compute, kComputeTrack), std::pair(&messages, kMessagesTrack)}) {
    for (const TraceSlice& slice : trace->slices()) {
      PackedSlice packed{slice, track};
      packed.slice.begin_ns += offset_ns;
      packed.slice.end_ns += offset_ns;
      bytes.append(reinterpret_cast<const char*>(&packed), sizeof packed);
    }
    trace->Clear();
  }
  return bytes;
}

void TraceFile::Append(const std::vector<std::string>& gathered, std::string_view prefix) {
  std::string text;
  for (size_t r = 0; r < gathered.size(); ++r) {
    for (size_t at = 0; at + sizeof(PackedSlice) <= gathered[r].size(); at += sizeof(PackedSlice)) {
      PackedSlice packed;
      std::memcpy(&packed, gathered[r].data() + at, sizeof packed);
      AppendTraceSlice(text, r, static_cast<int>(packed.track), prefix, packed.slice);
    }
  }
  Write(text);
}

void TraceFile::Close() { Write(std::string(kTraceEnd)); }

}  // namespace pd
