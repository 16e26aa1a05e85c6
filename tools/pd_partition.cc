// pd-partition: profile.json → plan.json.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "base/version.h"
#include "command_line.h"
#include "partition/partition.h"

namespace {

constexpr const char* kExamples = R"(examples:
  pd-partition profile.json -n 4 --bandwidth 10Gbps -o plan.json
  pd-partition profile.json --cluster configs/clusters/two-hosts-1gbps.json -o plan.json
  pd-partition profile.json -n 8 --bandwidth 25Gbps --memory 16GB --strategy straight -o plan.json
  pd-profile models/mini.json -b 64 | pd-partition - -n 2 --bandwidth 1Gbps > plan.json
exit status: 0 done; 1 failed while running; 2 bad input or usage)";

struct Flags {
  std::string profile, workers, cluster, bandwidth, memory;
  std::string strategy = "auto", schedule = "1f1b", cost_model = "runtime", output;
  std::string simulate, trace;
  bool quiet = false;
};

void Declare(CLI::App& app, Flags& flags) {
  const auto option = [&app](const char* name, std::string& value, const char* type,
                             const char* help) {
    return app.add_option(name, value, help)->type_name(type);
  };
  option("profile", flags.profile, "PROFILE", "profile/1 file, - for standard input")->required();
  option("-n", flags.workers, "N", "workers at most; the plan may leave some idle");
  option("--cluster", flags.cluster, "FILE", "cluster/1 file, instead of -n and --bandwidth");
  option("--bandwidth", flags.bandwidth, "RATE",
         "of each worker's link, each way: 10Gbps, 1.25GB/s, or unlimited");
  option("--memory", flags.memory, "SIZE", "limit of each worker: 16GB, 16GiB");
  option("--strategy", flags.strategy, "NAME",
         "auto, data-parallel, model-parallel or straight (auto)");
  option("--schedule", flags.schedule, "NAME", "schedule (1f1b)");
  option("--cost-model", flags.cost_model, "NAME",
         "runtime: what pd-train does; arxiv: the formulas of arXiv 1806.03377 (runtime)");
  option("-o", flags.output, "FILE", "the plan's file (standard output)");
  app.add_flag("--quiet", flags.quiet, "no table on standard error");
  option("--simulate", flags.simulate, "N", "not available yet");
  option("--trace", flags.trace, "FILE", "not available yet");
  app.set_version_flag("--version", [] {
    return pd::VersionLine("pd-partition", fmt::format("CLI11 {}", CLI11_VERSION));
  });
  app.footer(kExamples);
}

pd::Cluster ClusterOf(const Flags& flags) {
  PD_REQUIRE(flags.workers.empty() != flags.cluster.empty(), "expected -n or --cluster, found {}",
             flags.workers.empty() ? "neither" : "both");
  pd::Cluster cluster;
  if (!flags.cluster.empty()) {
    PD_REQUIRE(flags.bandwidth.empty(), "--bandwidth: expected none beside --cluster, found \"{}\"",
               flags.bandwidth);
    PD_REQUIRE(flags.cluster != "-" || flags.profile != "-",
               "expected one file from standard input, found profile and cluster");
    const std::string file = flags.cluster == "-" ? "standard input" : flags.cluster;
    cluster = pd::ReadCluster(pd::JsonView::Parse(pd::ReadFile(flags.cluster), file));
  } else {
    const int workers = static_cast<int>(pd::ParseInt(flags.workers, "-n", 1, 4096));
    PD_REQUIRE(workers == 1 || !flags.bandwidth.empty(),
               "--bandwidth is needed for more than one worker: 10Gbps, 1.25GB/s, or unlimited");
    double bandwidth = pd::kUnlimitedBytesPerSecond;
    if (!flags.bandwidth.empty() && flags.bandwidth != "unlimited") {
      bandwidth = pd::ParseRate(flags.bandwidth, "--bandwidth");
      PD_REQUIRE(bandwidth >= 1 && bandwidth <= pd::kUnlimitedBytesPerSecond,
                 "--bandwidth: expected a rate from 1B/s to 1e30B/s, or unlimited, found \"{}\"",
                 flags.bandwidth);
    }
    cluster.levels.push_back({workers, bandwidth, 0});
  }
  if (!flags.memory.empty()) cluster.memory_bytes = pd::ParseSize(flags.memory, "--memory");
  return cluster;
}

// The command as the plan records it: printable, whatever was typed.
std::string CommandOf(int argc, char** argv) {
  std::string command = "pd-partition";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  for (char& c : command) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return command;
}

void Run(const Flags& flags, const std::string& command) {
  pd::PartitionOptions options;
  options.cluster = ClusterOf(flags);
  options.strategy = pd::ParseStrategy(flags.strategy);
  options.cost_model = pd::ParseCostModel(flags.cost_model);
  options.schedule = flags.schedule;
  pd::CheckSchedule(flags.schedule);
  options.command = command;
  pd::RefuseOverwrite(flags.profile, flags.output, "-o");
  const std::string file = flags.profile == "-" ? "standard input" : flags.profile;
  const auto profile = pd::ReadProfile(pd::JsonView::Parse(pd::ReadFile(flags.profile), file));
  const pd::PartitionResult result = pd::Partition(profile, options);
  if (!flags.quiet) std::fputs(pd::FormatTable(result, options).c_str(), stderr);
  pd::WriteFile(flags.output, pd::WritePlan(result.plan));
}

}  // namespace

int main(int argc, char** argv) {
  pd::SetLogPrefix("pd-partition");
  Flags flags;
  CLI::App app("Plans pipelined training: which layers on which workers.", "pd-partition");
  Declare(app, flags);
  try {
    app.parse(argc, argv);
    for (const char* const name : {"--simulate", "--trace"}) {
      PD_REQUIRE(app.count(name) == 0, "{} is not available yet", name);
    }
    Run(flags, CommandOf(argc, argv));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    pd::LogLine(pd::Complaint(app, e));
    return 2;
  } catch (const pd::Error& e) {
    pd::LogLine(e.what());
    return e.code() == pd::ErrorCode::kInvalidInput ? 2 : 1;
  } catch (const std::exception& e) {
    pd::LogLine(e.what());
    return 1;
  }
  return 0;
}
