// pd-train: trains the plan's model over the workers of an MPI job. Flags become TrainArguments;
// lib/train does the rest.
#include <CLI/CLI.hpp>
#include <csignal>

#include "backend/registry.h"
#include "base/log.h"
#include "base/version.h"
#include "command_line.h"
#include "job_rank.h"
#include "train/trainer.h"
#include "train_flags.h"
#include "transport/mpi/mpi_session.h"
#include "transport/mpi/mpi_transport.h"

namespace {

constexpr const char* kExamples = R"(examples:
  mpirun -np 2 pd-train plan.json --data /usr/share/datasets/fashion-mnist --epochs 3
  pd-profile models/mini.json -b 64 | pd-partition - -n 2 --bandwidth 1Gbps | mpirun -np 2 pd-train - --data DIR
  pd-train plan.json --check
exit status: 0 done; 1 failed while running; 2 bad input or usage; 3 a target not reached)";

int Train(const pd::TrainArguments& arguments) {
  pd::MpiSession session;
  pd::MpiTransport transport(session);
  // Other ranks would wait for this one: end them before anything unwinds.
  const auto fail = [&](const std::exception& e) {
    if (transport.size() == 1) return;
    if (dynamic_cast<const pd::RankError*>(&e) != nullptr) pd::SetLogPrefix("pd-train");
    session.Abort(pd::Complain(e));
  };
  try {
    return pd::RunTraining(arguments, transport, fail);
  } catch (const pd::CollectiveError& e) {
    return transport.rank() == 0 ? pd::Complain(e) : pd::StatusOf(e);
  } catch (const std::exception& e) {
    fail(e);
    return pd::Complain(e);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const pd::JobRank job = pd::FindJobRank();
  pd::SetLogPrefix(job.LogPrefix("pd-train"));
  std::signal(SIGPIPE, SIG_IGN);  // a reader of metrics that goes away is an error like any other
  pd::TrainFlags flags;
  CLI::App app("Trains the model of a plan over the ranks of an MPI job, one rank a worker.",
               "pd-train");
  flags.Declare(app);
  app.set_version_flag("--version", [] {
    return pd::VersionLine("pd-train", fmt::format("{}, {}, CLI11 {}", pd::MpiLibraryName(),
                                                   pd::BackendLibraries(), CLI11_VERSION));
  });
  app.footer(kExamples);
  try {
    app.parse(argc, argv);
    flags.Finish(app);
    if (!flags.arguments.check) return Train(flags.arguments);
    if (job.is_first()) pd::CheckPlan(flags.arguments);
    return 0;
  } catch (const CLI::ParseError& e) {
    return pd::Answer(app, e, job.speaks);
  } catch (const std::exception& e) {
    return pd::Complain(e);
  }
}
