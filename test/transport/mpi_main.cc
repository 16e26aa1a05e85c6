// One rank of the transport's tests under mpirun; the argument says what to try. Exits with 0 when
// every claim holds on every rank.
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/host.h"
#include "base/log.h"
#include "suite.h"
#include "transport/mpi/mpi_transport.h"

namespace pd {
namespace {

// As if every rank were on a host of its own.
MpiPieces AllOf(size_t bytes) { return {.near_bytes = bytes, .far_bytes = bytes}; }
MpiPieces Far() { return AllOf(MpiPieces().far_bytes); }

void RunSuite(MpiSession& session, const SuiteOptions& options, const MpiPieces& pieces) {
  MpiTransport transport(session, pieces);
  PD_CHECK(
      transport.local_rank() < transport.local_size() && transport.local_size() <= transport.size(),
      "local rank {} of {}", transport.local_rank(), transport.local_size());
  for (const TransportCase& each : TransportSuite(options)) {
    try {
      each.run(transport);
      Barrier(transport);
    } catch (const std::exception& error) {
      Throw(ErrorCode::kInternal, "not true: {}: {}", each.claim, error.what());
    }
  }
}

void RunPieces(MpiSession& session) {
  SuiteOptions options;
  options.largest_bytes = 65536;
  for (const size_t piece_bytes : {size_t{3000}, size_t{4096}}) {
    options.piece_bytes = piece_bytes;
    RunSuite(session, options, AllOf(piece_bytes));
  }
}

void RunFar(MpiSession& session) {
  SuiteOptions options;
  options.piece_bytes = Far().far_bytes;
  RunSuite(session, options, Far());
}

// Rank 1 polls, and starts no receive: what it is sent stays with rank 0.
void RunLateReceive(MpiSession& session) {
  constexpr size_t kMessages = 8, kBytes = size_t{16} << 20;
  constexpr int64_t kMostStored = int64_t{2} << 20;
  MpiTransport transport(session, Far());
  const bool sends = transport.rank() == 0;
  std::vector<std::byte> data(kMessages * kBytes, std::byte{1});
  if (sends) {
    FillBytes(data, 9);
    for (size_t i = 0; i < kMessages; ++i) {
      transport.StartSend(1, 0, data.data() + i * kBytes, kBytes, nullptr);
    }
  }
  if (!sends) {
    const int64_t before = ResidentMemoryBytes();
    Transport::Completion none[1];
    for (int i = 0; i < 500; ++i) {
      PD_CHECK(transport.Poll(none) == 0, "a request that nobody started");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const int64_t stored = ResidentMemoryBytes() - before;
    PD_CHECK(stored < kMostStored, "{} bytes stored", stored);
    for (size_t i = 0; i < kMessages; ++i) {
      transport.StartReceive(0, 0, data.data() + i * kBytes, kBytes, nullptr);
    }
  }
  WaitFor(transport, kMessages);
  PD_CHECK(HasBytes(data.data(), data.size(), 9), "other bytes");
}

// Messages of one piece and more, on two tags; receives are started in another order than sends.
void RunCrossed(MpiSession& session) {
  constexpr size_t kMessages = 40;
  MpiTransport transport(session, Far());
  const bool sends = transport.rank() == 0;
  const auto length = [](size_t i) { return (i * 37 % 11) * size_t{30'000}; };
  std::vector<std::vector<std::byte>> data;
  for (size_t i = 0; i < kMessages; ++i) data.emplace_back(length(i));
  if (sends) {
    for (size_t i = 0; i < kMessages; ++i) {
      FillBytes(data[i], i);
      transport.StartSend(1, static_cast<int>(i % 2), data[i].data(), length(i), nullptr);
    }
  } else {
    for (const size_t tag : {1, 0}) {
      for (size_t i = tag; i < kMessages; i += 2) {
        transport.StartReceive(0, static_cast<int>(tag), data[i].data(), length(i), nullptr);
      }
    }
  }
  WaitFor(transport, kMessages);
  for (size_t i = 0; i < kMessages; ++i) {
    PD_CHECK(HasBytes(data[i].data(), length(i), i), "message {}", i);
  }
}

// Rank 0 sends `bytes` to rank 1, which has room for fewer: refused there, with nothing written
// past the end, and the job ends.
void RunTooLong(MpiSession& session, size_t bytes, size_t room, const MpiPieces& pieces) {
  MpiTransport transport(session, pieces);
  std::vector<std::byte> data(bytes, std::byte{1}), space(bytes);
  if (transport.rank() == 0) {
    transport.StartSend(1, 3, data.data(), bytes, nullptr);
    WaitFor(transport, 1);
    Barrier(transport);  // Rank 1 never comes.
  }
  transport.StartReceive(0, 3, space.data(), room, nullptr);
  try {
    WaitFor(transport, 1);
  } catch (const Error& error) {
    PD_CHECK(error.code() == ErrorCode::kComm, "{}", error.what());
    const std::string expected = fmt::format(
        "rank 1: message from rank 0 with tag 3: expected at most {} bytes, found {}", room, bytes);
    PD_CHECK(error.what() == expected, "{}", error.what());
    for (size_t i = room; i < bytes; ++i) PD_CHECK(space[i] == std::byte{0}, "written at {}", i);
    session.Abort(5);
  }
  Throw(ErrorCode::kInternal, "{} bytes accepted in room for {}", bytes, room);
}

void RunBadTag(MpiSession& session) {
  MpiTransport transport(session);
  char byte = 0;
  for (const int tag : {-1, -1000}) {
    try {
      transport.StartSend(0, tag, &byte, 1, nullptr);
    } catch (const Error&) {
      continue;
    }
    Throw(ErrorCode::kInternal, "tag {} accepted", tag);
  }
}

// 2 GiB and 5 bytes in pieces of the default size.
void RunHuge(MpiSession& session) {
  MpiTransport transport(session);
  std::vector<std::byte> data((size_t{1} << 31) + 5);
  if (transport.rank() == 0) {
    FillBytes(data, 3);
    transport.StartSend(1, 0, data.data(), data.size(), nullptr);
    WaitFor(transport, 1);
  } else {
    transport.StartReceive(0, 0, data.data(), data.size(), nullptr);
    PD_CHECK(WaitFor(transport, 1)[0].bytes == data.size(), "cut");
    PD_CHECK(HasBytes(data.data(), data.size(), 3), "other bytes");
  }
}

// Rank 1 leaves; the others wait for a message that never comes.
void RunLeave(MpiSession& session, bool by_exception) {
  MpiTransport transport(session);
  Barrier(transport);
  if (transport.rank() == 1) {
    if (by_exception) Throw(ErrorCode::kInternal, "meant to fail");
    session.Abort(7);
  }
  char byte = 0;
  transport.StartReceive(1, 0, &byte, 1, nullptr);
  WaitFor(transport, 1);
}

void RunMode(MpiSession& session, std::string_view mode) {
  if (mode == "suite") return RunSuite(session, {}, {});
  if (mode == "pieces") return RunPieces(session);
  if (mode == "far") return RunFar(session);
  if (mode == "late-receive") return RunLateReceive(session);
  if (mode == "crossed") return RunCrossed(session);
  if (mode == "too-long") return RunTooLong(session, 11, 10, {});
  if (mode == "too-long-zero") return RunTooLong(session, 1, 0, {});
  if (mode == "too-long-large") return RunTooLong(session, 1 << 20, 1000, {});
  if (mode == "too-long-pieces") return RunTooLong(session, 5000, 2500, AllOf(1000));
  if (mode == "bad-tag") return RunBadTag(session);
  if (mode == "huge") return RunHuge(session);
  if (mode == "abort") return RunLeave(session, false);
  if (mode == "throw") return RunLeave(session, true);
  Throw(ErrorCode::kInvalidInput, "mode {}", mode);
}

}  // namespace
}  // namespace pd

int main(int argc, char** argv) {
  const std::string_view mode = argc == 2 ? argv[1] : "";
  try {
    pd::MpiSession session;
    try {
      pd::RunMode(session, mode);
    } catch (const std::exception& error) {
      pd::LogLine(error.what());
      if (mode == "throw") throw;  // The session sees the exception pass, and ends the job.
      session.Abort(1);
    }
  } catch (const std::exception& error) {
    pd::LogLine(error.what());
    return 3;
  }
  return 0;
}
