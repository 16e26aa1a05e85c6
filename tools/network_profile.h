#pragma once

#include <cstdio>
#include <string>

#include "base/file.h"
#include "base/host.h"
#include "base/log.h"
#include "command_line.h"
#include "network/network.h"
#include "transport/mpi/mpi_session.h"
#include "transport/mpi/mpi_transport.h"

namespace pd {

/// Why `output` cannot be written, or nothing.
inline std::string RefusalOf(const std::string& output) {
  try {
    RequireWritable(output, "-o");
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

/// pd-profile --network, on every rank of the job: rank 0 speaks and writes. Returns the exit
/// status; ends the whole job where the measurement fails.
inline int RunNetworkProfile(const std::string& output, bool quiet) {
  MpiSession session;
  MpiTransport transport(session);
  const bool speaks = transport.rank() == 0;
  NetworkReport report;
  try {
    Comm comm(transport);
    const std::string refusal = comm.GatherAll(speaks ? RefusalOf(output) : "")[0];
    PD_REQUIRE(refusal.empty(), "{}", refusal);
    report = MeasureNetwork(comm, {MachineId(), transport.host(), AvailableMemoryBytes()});
  } catch (const Error& e) {
    // What is refused, is refused on every rank alike.
    if (e.code() != ErrorCode::kInvalidInput) session.Abort(Complain(e));
    return speaks ? Complain(e) : StatusOf(e);
  } catch (const std::exception& e) {
    session.Abort(Complain(e));
  }
  if (!speaks) return 0;
  try {
    if (!quiet) std::fputs(FormatNetwork(report).c_str(), stderr);
    for (const std::string& warning : report.warnings) Warn("{}", warning);
    WriteFile(output, WriteCluster(report.cluster));
  } catch (const Error& e) {
    return Complain(e);
  }
  return 0;
}

}  // namespace pd
