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
#include "partition/picture.h"
#include "partition_flags.h"
#include "patience.h"
#include "plan/graph_text.h"
#include "plan/layer_costs.h"

namespace {

constexpr const char* kExamples = R"(examples:
  pd-partition profile.json -n 4 --bandwidth 10Gbps -o plan.json
  pd-partition profile.json --cluster configs/clusters/two-hosts-1gbps.json -o plan.json
  pd-partition profile.json -n 8 --bandwidth 25Gbps --memory 16GB --strategy straight -o plan.json
  pd-partition profile.json -n 4 --bandwidth 10Gbps --cut-after pool2 --replicas 3,1 -o plan.json
  pd-partition profile.json -n 4 --bandwidth 10Gbps --explain --simulate 100 --trace trace.json -o plan.json
  pd-partition vgg16.graph.txt -b 128 -n 8 --bandwidth 10Gbps --picture plan.svg -o plan.json
  pd-partition vgg16.graph.txt -b 128 --convert -o vgg16.json
  pd-profile models/mini.json -b 64 | pd-partition - -n 2 --bandwidth 1Gbps > plan.json
exit status: 0 done; 1 failed while running; 2 bad input or usage)";

constexpr int64_t kMostMinibatches = 100'000;
constexpr int64_t kMostSteps = 20'000'000;  // minibatches · stages of a simulated run

// The command as the plan records it: printable, whatever was typed.
std::string CommandOf(int argc, char** argv) {
  std::string command = "pd-partition";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  for (char& c : command) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return command;
}

pd::Profile ReadAnyProfile(const pd::PartitionFlags& flags) {
  const std::string file = flags.profile == "-" ? "standard input" : flags.profile;
  const std::string text = pd::ReadFile(flags.profile);
  std::optional<int64_t> batch;
  if (!flags.batch.empty()) batch = pd::ParseInt(flags.batch, "-b", 1, pd::kMaxBatchSize);
  if (pd::LooksLikeGraphText(text)) return pd::ReadGraphText(text, file, batch);
  PD_REQUIRE(pd::LooksLikeJson(text),
             "{}: expected a profile/1 file, or a text profile, whose lines begin with \"nodeN\", "
             "found neither",
             file);
  pd::Profile profile = pd::ReadProfile(pd::JsonView::Parse(text, file));
  PD_REQUIRE(!batch, "-b: expected none beside a profile/1 file, found \"{}\"", flags.batch);
  PD_REQUIRE(!flags.convert, "--convert: expected a *.graph.txt profile, found {}", file);
  return profile;
}

void Simulate(const pd::PartitionFlags& flags, const pd::PartitionResult& result) {
  const int64_t minibatches = pd::ParseInt(flags.simulate, "--simulate", 1, kMostMinibatches);
  const auto most = kMostSteps / static_cast<int64_t>(result.stages.size());
  PD_REQUIRE(minibatches <= most, "--simulate: expected at most {} for {} stages, found {}", most,
             result.stages.size(), minibatches);
  const pd::SimulatedRun run = pd::SimulateRun(result.plan.schedule, result.shape, result.pipeline,
                                               minibatches, !flags.trace.empty());
  std::fputs(pd::FormatRun(result, run, minibatches).c_str(), stderr);
  if (flags.trace.empty()) return;
  pd::WriteFile(flags.trace, pd::FormatTrace(run, result.plan.world_size()));
}

void Run(const pd::PartitionFlags& flags, const std::string& command) {
  flags.CheckFiles();
  if (flags.convert) {
    pd::WriteFile(flags.output, pd::WriteProfile(ReadAnyProfile(flags)));
    return;
  }
  pd::PartitionOptions options = flags.MakeOptions(command);
  if (!flags.simulate.empty()) pd::ParseInt(flags.simulate, "--simulate", 1, kMostMinibatches);
  const pd::Profile profile = ReadAnyProfile(flags);
  pd::PartitionResult result;
  std::string explanation;
  {
    pd::Patience patience(flags.quiet);
    options.progress = [&](const std::string& what) { patience.Doing(what); };
    result = pd::Partition(profile, options);
    if (flags.explain) explanation = pd::Explain(profile, options, result);
  }
  if (!flags.quiet) std::fputs(pd::FormatTable(result, options).c_str(), stderr);
  std::fputs(explanation.c_str(), stderr);
  if (!flags.simulate.empty()) Simulate(flags, result);
  if (!flags.picture.empty()) pd::WriteFile(flags.picture, pd::PlanPicture(result.plan));
  pd::WriteFile(flags.output, pd::WritePlan(result.plan));
}

}  // namespace

int main(int argc, char** argv) {
  pd::SetLogPrefix("pd-partition");
  pd::PartitionFlags flags;
  CLI::App app("Plans pipelined training: which layers on which workers.", "pd-partition");
  flags.Declare(app);
  app.set_version_flag("--version", [] {
    return pd::VersionLine("pd-partition", fmt::format("CLI11 {}", CLI11_VERSION));
  });
  app.footer(kExamples);
  try {
    app.parse(argc, argv);
    pd::PartitionFlags::RefuseEmpty(app);
    Run(flags, CommandOf(argc, argv));
  } catch (const CLI::ParseError& e) {
    return pd::Answer(app, e);
  } catch (const std::exception& e) {
    return pd::Complain(e);
  }
  return 0;
}
