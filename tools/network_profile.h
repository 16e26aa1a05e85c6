#pragma once

#include <cstdio>
#include <string>

#include "base/file.h"
#include "base/host.h"
#include "base/log.h"
#include "network/network.h"
#include "transport/mpi/mpi_session.h"
#include "transport/mpi/mpi_transport.h"

namespace pd {

/// pd-profile --network, on every rank of the job: rank 0 speaks and writes. Returns the exit
/// status; ends the whole job where the measurement fails.
inline int RunNetworkProfile(const std::string& output, bool quiet) {
  MpiSession session;
  MpiTransport transport(session);
  const bool speaks = transport.rank() == 0;
  NetworkReport report;
  try {
    Comm comm(transport);
    report = MeasureNetwork(comm, {MachineId(), transport.host(), AvailableMemoryBytes()});
  } catch (const Error& e) {
    // What is refused, is refused on every rank alike.
    const bool refused = e.code() == ErrorCode::kInvalidInput;
    if (speaks || !refused) Log("{}", e.what());
    if (!refused) session.Abort(1);
    return 2;
  } catch (const std::exception& e) {
    Log("{}", e.what());
    session.Abort(1);
  }
  if (!speaks) return 0;
  try {
    if (!quiet) std::fputs(FormatNetwork(report).c_str(), stderr);
    for (const std::string& warning : report.warnings) Warn("{}", warning);
    WriteFile(output, WriteCluster(report.cluster));
  } catch (const Error& e) {
    Log("{}", e.what());
    return 1;
  }
  return 0;
}

}  // namespace pd
