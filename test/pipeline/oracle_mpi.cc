// One rank of the oracle's cases under mpirun: trains each plan that needs as many ranks as there
// are, and exits with 0 when rank 0 finds every number of the serial run, bit for bit.
#include "base/error.h"
#include "base/log.h"
#include "pipeline/pipelined.h"
#include "transport/mpi/mpi_transport.h"

namespace pd {
namespace {

int RanksOf(const TrainingCase& c) {
  int ranks = 0;
  for (const int r : c.replicas) ranks += r;
  return ranks;
}

void RunCases(MpiSession& session, const std::string& backend) {
  const RandomData data = OracleData();
  int tried = 0;
  for (NamedCase named : OracleCases(backend)) {
    named.c.evaluations = {7, 50};
    MpiTransport transport(session);
    if (RanksOf(named.c) != transport.size()) continue;
    ++tried;
    const TrainingResult got = TrainPipelined(named.c, data, transport);
    if (transport.rank() != 0) continue;
    const std::string difference = Difference(got, TrainSerially(named.c, data));
    PD_CHECK(difference.empty(), "{} on {}: {}", named.name, backend, difference);
    Log("{} on {}: equal", named.name, backend);
  }
  PD_CHECK(tried > 0, "no plan for these ranks");
}

}  // namespace
}  // namespace pd

int main(int argc, char** argv) {
  try {
    pd::MpiSession session;
    try {
      pd::RunCases(session, argc == 2 ? argv[1] : "ref");
    } catch (const std::exception& error) {
      pd::LogLine(error.what());
      session.Abort(1);
    }
  } catch (const std::exception& error) {
    pd::LogLine(error.what());
    return 1;
  }
  return 0;
}
