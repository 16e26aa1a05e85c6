// pd-profile: model.json → profile.json; with --network, the hosts of an MPI job → cluster.json.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "backend/backend.h"
#include "backend/registry.h"
#include "base/error.h"
#include "base/file.h"
#include "base/host.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "base/version.h"
#include "command_line.h"
#include "job_rank.h"
#include "network_profile.h"
#include "plan/layer_costs.h"
#include "profile/report.h"
#include "progress_line.h"

namespace {

constexpr const char* kExamples = R"(examples:
  pd-profile models/mini.json -b 64 -o profile.json
  pd-profile models/mini.json -b 64 | pd-partition - -n 2 --bandwidth 1Gbps -o plan.json
  pd-profile models/vgg11_bn.json -b 64 --minibatches 10 --threads 2 -o profile.json
  mpirun -np 4 --hostfile hosts pd-profile --network -o cluster.json
exit status: 0 done; 1 failed while running; 2 bad input or usage)";

// Of the memory that is available, what measuring may take.
constexpr double kMemoryShare = 0.8;
constexpr int64_t kMaxMinibatches = 1'000'000;
constexpr int64_t kMaxThreads = 1024;

struct Flags {
  std::string model, batch = "64", minibatches = "50", warmup = "5";
  std::string device = "auto", threads = "1", seed = "1", memory, output;
  bool tf32 = false, quiet = false, network = false;
};

void Declare(CLI::App& app, Flags& flags) {
  const auto option = [&](const char* name, std::string& value, const char* type,
                          const char* help) {
    return app.add_option(name, value, help)->type_name(type);
  };
  option("MODEL", flags.model, "", "model/1 file, - for standard input");
  option("-b", flags.batch, "N", "samples of a minibatch (64)");
  option("--minibatches", flags.minibatches, "N", "minibatches measured (50)");
  option("--warmup", flags.warmup, "N", "minibatches before them (5)");
  option("--device", flags.device, "NAME",
         "auto, ref, cpu, cuda or cuda:N; auto takes a GPU where there is one (auto)");
  app.add_flag("--tf32", flags.tf32, "on a GPU: round products to TF32, as pd-train --tf32 does");
  option("--threads", flags.threads, "N", "threads; as many as a worker of pd-train has (1)");
  option("--seed", flags.seed, "N", "seed of weights and data (1)");
  option("--memory", flags.memory, "SIZE",
         "above it a model is measured in pieces (80 % of what is free)");
  CLI::Option* network = app.add_flag("--network", flags.network,
                                      "measure the network between the ranks of mpirun instead");
  for (CLI::Option* other : app.get_options()) {
    if (other != network && other != app.get_help_ptr()) network->excludes(other);
  }
  option("-o", flags.output, "FILE", "the profile, or the cluster/1 file (standard output)");
  app.add_flag("--quiet", flags.quiet, "only warnings on standard error");
  app.set_version_flag("--version", [] {
    return pd::VersionLine("pd-profile", fmt::format("{}, {}, CLI11 {}", pd::BackendLibraries(),
                                                     pd::MpiLibraryName(), CLI11_VERSION));
  });
  app.footer(kExamples);
}

void CheckThreads(int threads, bool quiet) {
  const int cores = pd::UsableCores();
  if (threads > cores) {
    pd::Warn("{} threads on {}: the times will not be those of a worker", threads,
             pd::Counted(cores, "usable core"));
  } else if (threads < cores && !quiet) {
    pd::Log("uses {} of {} cores; --threads {} measures a worker that has all of them", threads,
            cores, cores);
  }
}

pd::ProfileOptions OptionsOf(const Flags& flags) {
  pd::ProfileOptions options;
  options.batch_size = pd::ParseInt(flags.batch, "-b", 1, pd::kMaxBatchSize);
  options.minibatches = pd::ParseInt(flags.minibatches, "--minibatches", 1, kMaxMinibatches);
  options.warmup = pd::ParseInt(flags.warmup, "--warmup", 0, kMaxMinibatches);
  options.seed = static_cast<uint64_t>(pd::ParseInt(flags.seed, "--seed", 0, INT64_MAX));
  const auto available = static_cast<double>(pd::AvailableMemoryBytes());
  options.memory_bytes = flags.memory.empty() ? static_cast<int64_t>(kMemoryShare * available)
                                              : pd::ParseSize(flags.memory, "--memory");
  return options;
}

void Run(const Flags& flags) {
  PD_REQUIRE(!flags.model.empty(), "expected MODEL, or --network, found neither");
  pd::RefuseOverwrite(flags.model, flags.output, "-o", "the model");
  pd::RequireWritable(flags.output, "-o");
  pd::ProfileOptions options = OptionsOf(flags);
  const auto threads = static_cast<int>(pd::ParseInt(flags.threads, "--threads", 1, kMaxThreads));
  pd::BackendOptions wanted;
  wanted.threads = threads;
  wanted.tf32 = flags.tf32;
  const auto [kind, broken] =
      flags.device == "auto" ? pd::FindAutoDevice() : pd::AutoDevice{flags.device, {}};
  const auto backend = pd::MakeBackend(kind, wanted);
  const std::string file = flags.model == "-" ? "standard input" : flags.model;
  const auto model = pd::Model::Parse(pd::JsonView::Parse(pd::ReadFile(flags.model), file));
  if (flags.device == "auto" && !flags.quiet) {
    pd::Log("device auto: {}{}{}", backend->kind(), broken.empty() ? "" : "; CUDA fails: ", broken);
  }
  if (flags.tf32 && !backend->on_device()) pd::Warn("{}", pd::kTf32WithoutGpu);
  if (!backend->on_device()) CheckThreads(threads, flags.quiet);
  pd::ProfileResult result;
  {
    pd::ProgressLine line(flags.quiet);
    options.progress = [&](const pd::ProfileProgress& p) { line.Show(p, model.num_layers()); };
    result = pd::MeasureProfile(model, *backend, options);
  }
  if (result.pieces.size() > 1) {
    pd::Log("the whole model needs more than {}: measured in {} pieces, without whole_ms",
            pd::FormatBytes(static_cast<double>(options.memory_bytes)), result.pieces.size());
  }
  if (!flags.quiet) std::fputs(pd::FormatProfile(result).c_str(), stderr);
  for (const std::string& warning : pd::ProfileWarnings(result)) pd::Warn("{}", warning);
  pd::WriteFile(flags.output, pd::WriteProfile(result.profile));
}

}  // namespace

int main(int argc, char** argv) {
  const pd::JobRank job = pd::FindJobRank();
  pd::SetLogPrefix(job.LogPrefix("pd-profile"));
  Flags flags;
  CLI::App app("Measures what each layer of a model costs on this machine.", "pd-profile");
  Declare(app, flags);
  try {
    app.parse(argc, argv);
    if (flags.network) return pd::RunNetworkProfile(flags.output, flags.quiet);
    Run(flags);
  } catch (const CLI::ParseError& e) {
    return pd::Answer(app, e, job.speaks);
  } catch (const std::exception& e) {
    const int status = pd::StatusOf(e);
    return job.speaks || status == 1 ? pd::Complain(e) : status;
  }
  return 0;
}
