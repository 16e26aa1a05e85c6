#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/units.h"
#include "partition/partition.h"
#include "partition/replicas.h"

namespace pd {

/// The command line of pd-partition.
struct PartitionFlags {
  std::string profile, batch, workers, cluster, bandwidth, memory;
  std::string strategy = "auto", schedule = "1f1b", cost_model = "runtime", replicas, output;
  std::string simulate, trace, picture;
  std::vector<std::string> cut_after;
  bool no_recompute = false, explain = false, convert = false, quiet = false;

  void Declare(CLI::App& app) {
    const auto option = [&app](const char* name, auto& value, const char* type, const char* help) {
      return app.add_option(name, value, help)->type_name(type);
    };
    option("profile", profile, "PROFILE",
           "profile/1 file, or a published *.graph.txt; - for standard input")
        ->required();
    option("-n", workers, "N", "workers at most; the plan may leave some idle");
    option("--cluster", cluster, "FILE", "cluster/1 file, instead of -n and --bandwidth");
    option("--bandwidth", bandwidth, "RATE",
           "of each worker's link, each way: 10Gbps, 1.25GB/s, or unlimited");
    option("--memory", memory, "SIZE", "limit of each worker: 16GB, 16GiB");
    option("--strategy", strategy, "NAME",
           "auto, data-parallel, model-parallel or straight (auto)");
    option("--cut-after", cut_after, "LAYER", "a stage ends behind this layer; may be repeated")
        ->allow_extra_args(false);
    option("--replicas", replicas, "N,N,...",
           "of the stages, hence their number: 3,1, or 2-1x8 as the table has it");
    app.add_flag("--no-recompute", no_recompute,
                 "no stage runs its forward pass twice to fit the memory");
    option("--schedule", schedule, "NAME", "schedule (1f1b)");
    option("--cost-model", cost_model, "NAME",
           "runtime: what pd-train does; arxiv: the formulas of arXiv 1806.03377 (runtime)");
    option("-o", output, "FILE", "the plan's file (standard output)");
    option("--simulate", simulate, "N", "prints a simulated run of N minibatches");
    option("--trace", trace, "FILE", "that run as a trace for Perfetto or chrome://tracing");
    app.add_flag("--explain", explain,
                 "prints what links, workers and memory would change, and why others lose");
    option("--picture", picture, "FILE", "the plan as an SVG picture");
    option("-b", batch, "N", "samples of a minibatch of a *.graph.txt, which does not say it");
    CLI::Option* only =
        app.add_flag("--convert", convert, "only writes a *.graph.txt as profile/1");
    for (const char* const other : {"--explain", "--simulate", "--trace", "--picture"}) {
      only->excludes(app.get_option(other));
    }
    app.add_flag("--quiet", quiet, "no table and no progress on standard error");
  }

  // An empty value is most likely a variable that was not set: no limit, or a default, would be
  // silently wrong.
  static void RefuseEmpty(const CLI::App& app) {
    for (const CLI::Option* option : app.get_options()) {
      const std::vector<std::string>& values = option->results();
      PD_REQUIRE(std::find(values.begin(), values.end(), "") == values.end(),
                 "{}: expected a value, found an empty one", option->get_name());
    }
  }

  Cluster MakeCluster() const {
    PD_REQUIRE(workers.empty() != cluster.empty(), "expected -n or --cluster, found {}",
               workers.empty() ? "neither" : "both");
    Cluster made;
    if (!cluster.empty()) {
      PD_REQUIRE(bandwidth.empty(), "--bandwidth: expected none beside --cluster, found \"{}\"",
                 bandwidth);
      PD_REQUIRE(cluster != "-" || profile != "-",
                 "expected one file from standard input, found profile and cluster");
      const std::string file = cluster == "-" ? "standard input" : cluster;
      made = ReadCluster(JsonView::Parse(ReadFile(cluster), file));
    } else {
      const int count = static_cast<int>(ParseInt(workers, "-n", 1, 4096));
      PD_REQUIRE(count == 1 || !bandwidth.empty(),
                 "--bandwidth is needed for more than one worker: 10Gbps, 1.25GB/s, or unlimited");
      double rate = kUnlimitedBytesPerSecond;
      if (!bandwidth.empty() && bandwidth != "unlimited") {
        rate = ParseRate(bandwidth, "--bandwidth");
        PD_REQUIRE(rate >= 1 && rate <= kUnlimitedBytesPerSecond,
                   "--bandwidth: expected a rate from 1B/s to 1e30B/s, or unlimited, found \"{}\"",
                   bandwidth);
      }
      made.levels.push_back({count, rate, 0});
    }
    if (!memory.empty()) made.memory_bytes = ParseSize(memory, "--memory");
    return made;
  }

  PartitionOptions MakeOptions(const std::string& command) const {
    PartitionOptions options;
    options.cluster = MakeCluster();
    options.strategy = ParseStrategy(strategy);
    options.cost_model = ParseCostModel(cost_model);
    options.schedule = schedule;
    CheckSchedule(schedule);
    options.cut_after = cut_after;
    options.allow_recompute = !no_recompute;
    options.command = command;
    if (!replicas.empty()) options.replicas = ParseReplicas(replicas, "--replicas");
    return options;
  }

  /// Each output can be written, and overwrites no input and no other output.
  void CheckFiles() const {
    const std::vector<std::pair<const char*, const std::string*>> outputs = {
        {"-o", &output}, {"--trace", &trace}, {"--picture", &picture}};
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto& [flag, path] = outputs[i];
      if (i > 0 && path->empty()) continue;
      PD_REQUIRE(i == 0 || *path != "-", "{}: expected a file, found \"-\"", flag);
      RefuseOverwrite(profile, *path, flag, "the profile");
      RefuseOverwrite(cluster, *path, flag, "the cluster");
      for (size_t j = 0; j < i; ++j) {
        RefuseOverwrite(*outputs[j].second, *path, flag, fmt::format("{}'s", outputs[j].first));
      }
      RequireWritable(*path, flag);
    }
    PD_REQUIRE(trace.empty() || !simulate.empty(), "--trace: expected beside --simulate N");
  }
};

}  // namespace pd
