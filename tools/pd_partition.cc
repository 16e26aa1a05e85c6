// pd-partition: profile.json → plan.json.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "command_line.h"
#include "partition/partition.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  pd-partition profile.json -n 4 --bandwidth 10Gbps -o plan.json
  pd-partition profile.json --cluster configs/clusters/two-hosts-1gbps.json -o plan.json
  pd-partition profile.json -n 8 --bandwidth 25Gbps --memory 16GB --strategy straight -o plan.json
  pd-profile models/mini.json -b 64 | pd-partition - -n 2 --bandwidth 1Gbps > plan.json)";

struct Flags {
  std::string profile, workers, cluster, bandwidth, memory;
  std::string strategy = "auto", schedule = "1f1b", cost_model = "runtime", output;
  bool quiet = false;
};

std::string Version() {
  return fmt::format("pd-partition 0.1.0 (fmt {}.{}.{}, nlohmann/json {}.{}.{}, CLI11 {})",
                     FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100,
                     NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                     NLOHMANN_JSON_VERSION_PATCH, CLI11_VERSION);
}

void Declare(CLI::App& app, Flags& flags) {
  app.add_option("PROFILE", flags.profile, "A profile/1 file; - reads standard input")->required();
  app.add_option("-n", flags.workers, "Workers at most; the plan may leave some idle");
  app.add_option("--cluster", flags.cluster, "A cluster/1 file, instead of -n and --bandwidth");
  app.add_option("--bandwidth", flags.bandwidth,
                 "Of each worker's link, each way: 10Gbps, 1.25GB/s, or unlimited");
  app.add_option("--memory", flags.memory, "Limit of each worker: 16GB, 16GiB");
  app.add_option("--strategy", flags.strategy,
                 "auto (default), data-parallel, model-parallel, straight");
  app.add_option("--schedule", flags.schedule, "1f1b (default)");
  app.add_option("--cost-model", flags.cost_model,
                 "runtime (default): a bound on what pd-train does; arxiv: arXiv 1806.03377");
  app.add_flag("--quiet", flags.quiet, "No table on standard error");
  app.add_option("-o", flags.output, "The plan's file; default: standard output");
  app.set_version_flag("--version", Version());
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
