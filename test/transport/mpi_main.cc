// One rank of the transport's tests under mpirun; the argument says what to try. Exits with 0 when
// every claim holds on every rank.
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "suite.h"
#include "transport/mpi/mpi_transport.h"

namespace pd {
namespace {

void RunSuite(MpiSession& session, const SuiteOptions& options, size_t piece_bytes) {
  MpiTransport transport(session, piece_bytes);
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
  for (const size_t piece_bytes : {size_t{1000}, size_t{1024}, size_t{333}}) {
    options.piece_bytes = piece_bytes;
    RunSuite(session, options, piece_bytes);
  }
}

// Rank 0 sends `bytes` to rank 1, which has room for fewer: refused there, with nothing written
// past the end, and the job ends.
void RunTooLong(MpiSession& session, size_t bytes, size_t room, size_t piece_bytes) {
  MpiTransport transport(session, piece_bytes);
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
    const std::string expected =
        fmt::format("rank 1: message from rank 0 with tag 3: expected at most {} bytes, found {}",
                    room, bytes < piece_bytes ? bytes : (room / piece_bytes + 1) * piece_bytes);
    PD_CHECK(std::string_view(error.what()).substr(0, expected.size()) == expected, "{}",
             error.what());
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
  if (mode == "suite") return RunSuite(session, {}, MpiTransport::kDefaultPieceBytes);
  if (mode == "pieces") return RunPieces(session);
  constexpr size_t kPiece = MpiTransport::kDefaultPieceBytes;
  if (mode == "too-long") return RunTooLong(session, 11, 10, kPiece);
  if (mode == "too-long-zero") return RunTooLong(session, 1, 0, kPiece);
  if (mode == "too-long-large") return RunTooLong(session, 1 << 20, 1000, kPiece);
  if (mode == "too-long-pieces") return RunTooLong(session, 5000, 2500, 1000);
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
