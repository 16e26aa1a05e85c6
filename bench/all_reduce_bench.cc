// Times the all-reduce of the runtime (communication thread, shards, chunks) under mpirun, beside
// the wire limit:
//   mpirun -np 2 all_reduce_bench [MEGABYTES [REPEATS [RANKS-OF-A-MACHINE]]]
// Checks the sum before it times anything. Rank 0 prints one line a repeat, then the median.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "pipeline/all_reduce.h"
#include "plan/plan.h"
#include "transport/mpi/mpi_session.h"
#include "transport/mpi/mpi_transport.h"

int main(int argc, char** argv) {
  const size_t megabytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 43;
  const int repeats = argc > 2 ? std::atoi(argv[2]) : 5;
  const int machine_ranks = argc > 3 ? std::atoi(argv[3]) : 1;
  PD_REQUIRE(machine_ranks > 0, "the ranks of a machine: expected a positive number");
  pd::MpiSession session;
  pd::MpiTransport transport(session);
  pd::Comm comm(transport);
  const auto backend = pd::MakeBackend("ref", 1);
  const size_t count = megabytes * 1000000 / sizeof(float) / 16 * 16;
  pd::Buffer data = backend->Allocate(count * sizeof(float));
  auto* values = reinterpret_cast<float*>(data.data());
  std::vector<int> ranks(static_cast<size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  pd::AllReducer reducer(comm, *backend, ranks, comm.rank(), data.bytes(), machine_ranks);
  pd::ReduceJob job;
  job.data = data.data();
  job.bytes = count * sizeof(float);
  job.weights.assign(ranks.size(), 1.0F);
  std::vector<double> seconds;
  for (int i = 0; i < repeats + 1; ++i) {
    std::fill_n(values, count, static_cast<float>(comm.rank() + 1));
    comm.Barrier();
    const int64_t start = pd::NowNs();
    reducer.Start(job);
    comm.Wait(job.done, {.action = "all-reduce"});
    const double took = pd::NsToS(pd::NowNs() - start);
    const auto m = static_cast<float>(ranks.size());
    for (size_t j = 0; j < count; ++j) PD_CHECK(values[j] == m * (m + 1) / 2, "wrong sum at {}", j);
    if (i == 0) continue;  // warm-up
    seconds.push_back(took);
  }
  std::sort(seconds.begin(), seconds.end());
  const double share = 2.0 * (comm.size() - 1) / comm.size();
  const double median = seconds[seconds.size() / 2];
  if (comm.rank() == 0) {
    std::printf(
        "%zu MB over %d ranks, %zu together: median %.3f s (min %.3f, max %.3f), %.1f MB/s each "
        "way\n",
        megabytes, comm.size(), pd::ReplicasTogether(ranks, machine_ranks), median, seconds.front(),
        seconds.back(), share * static_cast<double>(megabytes) / median);
  }
  comm.Barrier();
  return 0;
}
