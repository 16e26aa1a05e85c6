// Times searches and whole plans: partition_benchmark
#include <fmt/core.h>

#include "base/clock.h"
#include "partition/partition.h"
#include "partition/random_graph.h"
#include "partition/search.h"

int main() {
  for (const auto& [layers, workers] : {std::pair{200, 64}, std::pair{1000, 64}}) {
    std::mt19937 random(1);
    pd::Profile profile;
    profile.batch_size = 64;
    profile.layers = pd::RandomLayers(random, layers, true);
    for (const auto model : {pd::CostModel::kRuntime, pd::CostModel::kArxiv}) {
      const char* const name = model == pd::CostModel::kRuntime ? "runtime" : "arxiv";
      pd::PartitionOptions options;
      options.cluster.levels.push_back({workers, 1e6, 0});
      options.cost_model = model;
      int64_t start = pd::NowNs();
      const pd::PartitionResult result = pd::Partition(profile, options);
      const double whole = pd::NsToMs(pd::NowNs() - start);
      const pd::CostGraph graph = pd::MakeCostGraph(profile.layers);
      pd::SearchOptions search;
      search.rule = {model, 1e3};
      search.max_workers = workers;
      start = pd::NowNs();
      const auto found = pd::FindBestPlan(graph, search);
      const double alone = pd::NsToMs(pd::NowNs() - start);
      if (!found || found->bottleneck_ms != result.bottleneck_ms) {
        fmt::print("the bottlenecks differ\n");
        return 1;
      }
      fmt::print(
          "{} layers on {} workers, {}: search {:.0f} ms, whole plan of {} stages {:.0f} ms\n",
          layers, workers, name, alone, result.stages.size(), whole);
    }
  }
  return 0;
}
