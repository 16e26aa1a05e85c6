#include "partition/partition.h"

#include <fmt/core.h>

#include <optional>
#include <random>

#include "base/error.h"
#include "base/units.h"
#include "partition/random_graph.h"
#include "support/catch.h"

namespace pd {
namespace {

PartitionOptions Options(int workers, double bytes_per_s) {
  PartitionOptions options;
  options.cluster.levels.push_back({workers, bytes_per_s, 0});
  options.command = "pd-partition test";
  return options;
}

Profile RandomProfile(uint32_t seed, int layers, bool branches = true) {
  std::mt19937 random(seed);
  Profile profile;
  profile.batch_size = 32;
  profile.layers = RandomLayers(random, layers, branches);
  return profile;
}

TEST_CASE(
    "an arxiv plan is never worse than data parallel, model parallel or straight by its formulas") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const Profile profile = RandomProfile(seed, 10);
    PartitionOptions options = Options(5, 400'000);
    options.cost_model = CostModel::kArxiv;
    const double best = Partition(profile, options).bottleneck_ms;
    for (const Strategy strategy :
         {Strategy::kDataParallel, Strategy::kModelParallel, Strategy::kStraight}) {
      options.strategy = strategy;
      CHECK(best <= Partition(profile, options).bottleneck_ms);
    }
  }
}

// A cluster and options at random: one level, speeds, memory, or two levels.
PartitionOptions RandomCase(std::mt19937& random, int kind) {
  PartitionOptions options;
  const double rate = 1e5 * static_cast<double>(Uniform(random, 1, 60));
  const double latency = 0.05 * static_cast<double>(Uniform(random, 0, 2) * Uniform(random, 0, 10));
  options.cluster.levels = {{static_cast<int>(Uniform(random, 1, 6)), rate, latency}};
  if (kind == 1) {
    options.cluster.levels = {{static_cast<int>(Uniform(random, 1, 3)), rate, latency / 4},
                              {static_cast<int>(Uniform(random, 1, 3)),
                               rate / static_cast<double>(Uniform(random, 1, 6)), latency}};
  }
  for (int w = 0; kind == 2 && w < options.cluster.workers(); ++w) {
    options.cluster.speeds.push_back(0.5 * static_cast<double>(Uniform(random, 1, 4)));
  }
  if (kind == 3) options.cluster.memory_bytes = 1000 * Uniform(random, 100, 1500);
  options.compare = false;
  return options;
}

// Nothing if no plan fits.
std::optional<PartitionResult> Planned(const Profile& profile, const PartitionOptions& options) {
  try {
    return Partition(profile, options);
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::kInvalidInput);
    return std::nullopt;
  }
}

// A thousandth is nothing beside a worker saved.
constexpr double kNothing = 1 + 1e-3 + 1e-9;

TEST_CASE("no other plan is predicted to be faster than auto, nor costs less than the least cost") {
  std::mt19937 random(31);
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    const Profile profile =
        RandomProfile(static_cast<uint32_t>(round), 1 + round % 10, round % 3 != 0);
    PartitionOptions options = RandomCase(random, round % 4);
    const auto result = Planned(profile, options);
    if (!result) continue;
    REQUIRE(result->exact);
    REQUIRE(result->predicted.fits);
    REQUIRE(result->lower_bound_ms <= result->bottleneck_ms);
    // Costs are whole picoseconds.
    REQUIRE(result->bottleneck_ms <= result->predicted.minibatch_ms * (1 + 1e-9) + 1e-9);
    for (const Strategy strategy :
         {Strategy::kDataParallel, Strategy::kStraight, Strategy::kModelParallel}) {
      options.strategy = strategy;
      const auto other = Planned(profile, options);
      if (!other) continue;
      // One minibatch in flight takes less memory.
      if (strategy == Strategy::kModelParallel && options.cluster.memory_bytes) continue;
      REQUIRE(result->lower_bound_ms <= other->bottleneck_ms);
      REQUIRE(result->predicted.minibatch_ms <= kNothing * other->predicted.minibatch_ms);
    }
  }
}

TEST_CASE("more workers, bandwidth, speed or memory, or less latency, never raise the least cost") {
  std::mt19937 random(32);
  for (int round = 0; round < 150; ++round) {
    CAPTURE(round);
    const Profile profile =
        RandomProfile(static_cast<uint32_t>(round), 1 + round % 10, round % 3 != 0);
    const PartitionOptions options = RandomCase(random, round % 4);
    const auto before = Planned(profile, options);
    if (!before) continue;
    const auto check = [&](const PartitionOptions& better) {
      const auto after = Planned(profile, better);
      REQUIRE(after.has_value());
      REQUIRE(after->exact);
      REQUIRE(after->lower_bound_ms <= before->lower_bound_ms);
      return after->predicted.minibatch_ms;
    };
    PartitionOptions better = options;
    better.cluster.levels.back().workers += 1;
    while (!better.cluster.speeds.empty() &&
           static_cast<int>(better.cluster.speeds.size()) < better.cluster.workers()) {
      better.cluster.speeds.push_back(0.5 * static_cast<double>(Uniform(random, 1, 4)));
    }
    // More workers never raise the predicted time either: what fewer do is a candidate.
    REQUIRE(check(better) <= kNothing * before->predicted.minibatch_ms);
    better = options;
    Cluster::Level& level = better.cluster.levels[random() % better.cluster.levels.size()];
    level.bandwidth_bytes_per_s *= 1 + 0.1 * static_cast<double>(Uniform(random, 1, 30));
    check(better);
    better = options;
    better.cluster.levels[random() % better.cluster.levels.size()].latency_ms /= 2;
    check(better);
    better = options;
    if (options.cluster.memory_bytes) {
      *better.cluster.memory_bytes += Uniform(random, 1, 500) * 1000;
      check(better);
    }
    better = options;
    if (!options.cluster.speeds.empty()) {
      better.cluster.speeds[random() % better.cluster.speeds.size()] *= 1.5;
      check(better);
    }
  }
}

TEST_CASE("a runtime plan is never predicted to be slower than what it could be instead") {
  int one = 0, all = 0, others = 0;
  for (uint32_t seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    const Profile profile = RandomProfile(seed, 10);
    PartitionOptions options = Options(5, 400'000 * (1 + seed % 3));
    options.cluster.levels[0].latency_ms = seed % 4 * 300;
    const PartitionResult result = Partition(profile, options);
    // A thousandth is nothing beside a worker saved.
    const double most = result.predicted.minibatch_ms / (1 + 1e-3) / (1 + 1e-3);
    CHECK(most <= result.data_parallel.minibatch_ms);
    CHECK(most <= result.one_worker.minibatch_ms);
    PartitionOptions straight = options;
    straight.strategy = Strategy::kStraight;
    CHECK(most <= Partition(profile, straight).predicted.minibatch_ms);
    ++(result.idle_workers == 4 ? one : result.stages.size() == 1 ? all : others);
  }
  CHECK(one > 0);
  CHECK(others > 0);
}

TEST_CASE("a first stage that no gradient comes back to does not hide the slower one behind it") {
  Profile profile;
  profile.batch_size = 8;
  profile.layers.resize(2);
  profile.layers[0].name = "flat";
  profile.layers[0].forward_ms = 1;
  profile.layers[1].name = "fc";
  profile.layers[1].forward_ms = 10;
  profile.layers[1].backward_ms = 20;
  profile.layers[1].parameter_bytes = 100'000'000;
  for (const int64_t bytes : {int64_t{0}, int64_t{1000}}) {
    profile.layers[0].activation_bytes = profile.layers[1].activation_bytes = bytes;
    PartitionOptions options = Options(2, 1.25e8);
    options.strategy = Strategy::kStraight;
    CHECK(Partition(profile, options).predicted.minibatch_ms >= 30 * (1 - 1e-9));
  }
}

TEST_CASE("where latency eats all gain, one worker trains alone") {
  Profile profile;
  profile.batch_size = 8;
  for (const char* const name : {"a", "b"}) {
    LayerCost layer;
    layer.name = name;
    layer.forward_ms = layer.backward_ms = 0.5;
    layer.activation_bytes = layer.parameter_bytes = 4;
    profile.layers.push_back(layer);
  }
  PartitionOptions options = Options(2, 1e9);
  CHECK(Partition(profile, options).idle_workers == 0);
  options.cluster.levels[0].latency_ms = 10;
  const PartitionResult result = Partition(profile, options);
  CHECK(result.idle_workers == 1);
  REQUIRE(result.plan.stages.size() == 1);
  CHECK(result.plan.stages[0].workers == std::vector<int>{0});
  CHECK(result.predicted.minibatch_ms == Approx(2));
  CHECK(result.bottleneck_ms == Approx(2));
  CHECK_THAT(FormatTable(result, options),
             ContainsSubstring("1 of 2 workers stay idle: more would not be faster"));
}

TEST_CASE("the table marks what does not fit the memory, and claims no optimum within a limit") {
  Profile profile;
  profile.batch_size = 8;
  for (const char* const name : {"a", "b"}) {
    LayerCost layer;
    layer.name = name;
    layer.forward_ms = layer.backward_ms = 0.5;
    layer.activation_bytes = 4;
    layer.parameter_bytes = 1'000'000;
    profile.layers.push_back(layer);
  }
  PartitionOptions options = Options(3, 1e9);
  options.cluster.memory_bytes = 5'000'000;  // One worker would need 6 MB: weights three times.
  const PartitionResult result = Partition(profile, options);
  CHECK(result.plan.stages.size() == 2);
  CHECK_FALSE(result.data_parallel.fits);
  CHECK_FALSE(result.one_worker.fits);
  CHECK(result.predicted.fits);
  const std::string table = FormatTable(result, options);
  CHECK_THAT(table, ContainsSubstring("does not fit the memory"));
  CHECK_THAT(table, ContainsSubstring("1 of 3 workers stay idle\n"));
  options.cluster.memory_bytes.reset();
  CHECK_THAT(FormatTable(Partition(profile, options), options), !ContainsSubstring("does not fit"));
}

TEST_CASE(
    "what is planned can be read back: every layer once, workers in order, idle ones counted") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const Profile profile = RandomProfile(seed, 1 + static_cast<int>(seed % 9));
    PartitionOptions options = Options(1 + static_cast<int>(seed % 7), 300'000 * (1 + seed % 3));
    const Strategy all[] = {Strategy::kAuto, Strategy::kDataParallel, Strategy::kModelParallel,
                            Strategy::kStraight};
    options.strategy = all[seed % 4];
    const PartitionResult result = Partition(profile, options);
    const std::string text = WritePlan(result.plan);
    const Plan plan = ReadPlan(JsonView::Parse(text, "plan.json"));
    CHECK(WritePlan(plan) == text);
    CHECK(plan.world_size() == options.cluster.workers());
    int workers = 0;
    int64_t parameters = 0, expected = 0;
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      for (const int worker : plan.stages[s].workers) CHECK(worker == workers++);
      CHECK(plan.in_flight(static_cast<int>(s)) == result.stages[s].in_flight);
      for (const int l : result.stages[s].layers) {
        parameters += profile.layers[static_cast<size_t>(l)].parameter_bytes;
      }
    }
    for (const LayerCost& layer : profile.layers) expected += layer.parameter_bytes;
    CHECK(parameters == expected);
    CHECK(workers + result.idle_workers == options.cluster.workers());
    CHECK(FormatTable(result, options).find("this plan") != std::string::npos);
  }
}

TEST_CASE("planning twice gives the same bytes") {
  const Profile profile = RandomProfile(3, 40);
  const PartitionOptions options = Options(9, 500'000);
  const auto text = [&] {
    const PartitionResult result = Partition(profile, options);
    return WritePlan(result.plan) + FormatTable(result, options);
  };
  CHECK(text() == text());
}

TEST_CASE("the strategies are what their names say") {
  const Profile profile = RandomProfile(4, 8, false);
  PartitionOptions options = Options(3, 1e12);
  options.strategy = Strategy::kDataParallel;
  auto result = Partition(profile, options);
  CHECK(result.stages.size() == 1);
  CHECK(result.stages[0].workers.size() == 3);
  CHECK(result.predicted.minibatch_ms == result.data_parallel.minibatch_ms);
  options.strategy = Strategy::kStraight;
  const PartitionResult straight = Partition(profile, options);
  CHECK(straight.stages.size() <= 3);
  for (const StageReport& stage : straight.stages) CHECK(stage.workers.size() == 1);
  options.strategy = Strategy::kModelParallel;
  result = Partition(profile, options);
  CHECK(result.predicted.minibatch_ms == result.model_parallel.minibatch_ms);
  REQUIRE(result.stages.size() == straight.stages.size());
  double sum = 0;
  for (size_t s = 0; s < result.stages.size(); ++s) {
    CHECK(result.stages[s].layers == straight.stages[s].layers);
    CHECK(result.plan.in_flight(static_cast<int>(s)) == 1);
    sum += result.stages[s].compute_ms;
  }
  // One minibatch in flight: the stages work one after the other; only the last update of a stage
  // may overlap with the next stage's work.
  CHECK(result.predicted.minibatch_ms <= sum * 1.0001);
  CHECK(result.predicted.minibatch_ms > straight.predicted.minibatch_ms);
}

TEST_CASE(
    "a memory limit is kept by every worker, and one that is too small is answered with the next") {
  const Profile profile = RandomProfile(5, 12);
  PartitionOptions options = Options(4, 1e6);
  options.cluster.memory_bytes = 1000;
  std::string message;
  try {
    Partition(profile, options);
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::kInvalidInput);
    message = e.what();
  }
  CAPTURE(message);
  CHECK_THAT(message, ContainsSubstring("tightest layer is \"layer"));
  const std::string flag = "nearest limit that works: --memory ";
  const size_t at = message.find(flag);
  REQUIRE(at != std::string::npos);
  const int64_t least = ParseSize(message.substr(at + flag.size()), "--memory");
  options.cluster.memory_bytes = least;
  const PartitionResult fits = Partition(profile, options);
  for (const int64_t bytes : fits.plan.predicted->memory_bytes) {
    CHECK(bytes <= least);
  }
  options.cluster.memory_bytes = least - least / 1000;  // it is rounded up to four digits
  CHECK_THROWS_WITH(Partition(profile, options), ContainsSubstring("no plan fits"));
  options.strategy = Strategy::kDataParallel;
  CHECK_THROWS_WITH(Partition(profile, options), ContainsSubstring("no plan fits"));
}

Cluster TwoMachines(int each, double inner, double outer) {
  Cluster cluster;
  cluster.levels = {{each, inner, 0}, {2, outer, 0}};
  return cluster;
}

TEST_CASE(
    "plans for machines and unequal workers are complete, and never worse than what else is") {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const Profile profile = RandomProfile(seed, 8, seed % 2 == 0);
    PartitionOptions options;
    options.cluster = TwoMachines(2, 800'000, 100'000 * (1 + seed % 5));
    if (seed % 3 == 0) options.cluster.speeds = {1, 2, 0.5, 1};
    const PartitionResult result = Partition(profile, options);
    const double most = result.predicted.minibatch_ms / (1 + 1e-3) / (1 + 1e-3);
    CHECK(most <= result.data_parallel.minibatch_ms);
    CHECK(most <= result.straight.minibatch_ms);
    CHECK(most <= result.model_parallel.minibatch_ms);
    CHECK(most <= result.one_worker.minibatch_ms);
    CHECK(result.predicted.minibatch_ms >= result.predicted.bound.ms);
    const std::string text = WritePlan(result.plan);
    const Plan plan = ReadPlan(JsonView::Parse(text, "plan.json"));
    CHECK(WritePlan(plan) == text);
    for (size_t w = 0; w < 4; ++w) {
      const Predicted& predicted = *plan.predicted;
      CHECK(predicted.idle_share[w] ==
            Approx(1 - predicted.compute_ms[w] / predicted.minibatch_ms).margin(1e-9));
    }
  }
}

TEST_CASE("replicas that exchange much stand inside a machine") {
  Profile profile;
  profile.batch_size = 8;
  for (const char* const name : {"a", "b"}) {
    LayerCost layer;
    layer.name = name;
    layer.forward_ms = layer.backward_ms = 10;
    layer.activation_bytes = 1000;
    layer.parameter_bytes = 1'000'000;
    profile.layers.push_back(layer);
  }
  PartitionOptions options;
  options.cluster = TwoMachines(2, 1e12, 1e6);
  const PartitionResult result = Partition(profile, options);
  CHECK(result.predicted.replicas == "2-2");
  CHECK(result.predicted.minibatch_ms == Approx(10).epsilon(0.05));
}

TEST_CASE("a user's cuts and replicas are kept, and the rest is solved") {
  const Profile profile = RandomProfile(9, 10, false);
  PartitionOptions options = Options(5, 1e6);
  options.cut_after = {"layer2"};
  const PartitionResult cut = Partition(profile, options);
  bool ends = false;
  for (const StageReport& stage : cut.stages) ends = ends || stage.layers.back() == 2;
  CHECK(ends);
  options.replicas = {3, 1};
  const PartitionResult both = Partition(profile, options);
  CHECK(both.predicted.replicas == "3-1");
  CHECK(both.stages[0].layers.back() == 2);
  options.cut_after = {"layr2"};
  CHECK_THROWS_WITH(Partition(profile, options), ContainsSubstring("did you mean \"layer2\"?"));
  options.cut_after = {"layer9"};
  CHECK_THROWS_WITH(Partition(profile, options), ContainsSubstring("a layer that others read"));
  options.cut_after = {"layer2", "layer5"};
  CHECK_THROWS_WITH(Partition(profile, options), ContainsSubstring("these cuts and replicas"));
  options.cut_after.clear();
  options.strategy = Strategy::kStraight;
  CHECK_THROWS_WITH(Partition(profile, options), ContainsSubstring("--replicas"));
}

TEST_CASE("stages recompute only where memory asks for it, and only if they may") {
  Profile profile;
  profile.batch_size = 8;
  for (int l = 0; l < 4; ++l) {
    LayerCost layer;
    layer.name = fmt::format("layer{}", l);
    layer.forward_ms = 1;
    layer.backward_ms = 2;
    layer.activation_bytes = 1000;
    layer.parameter_bytes = 1000;
    layer.stash_bytes = 1'000'000;
    profile.layers.push_back(layer);
  }
  PartitionOptions options = Options(2, 1e9);
  const auto recomputes = [&] {
    const PartitionResult result = Partition(profile, options);
    bool any = false;
    for (size_t s = 0; s < result.stages.size(); ++s) {
      CHECK(result.stages[s].recompute == result.plan.stages[s].recompute);
      any = any || result.stages[s].recompute;
      const int64_t need = result.stages[s].memory_bytes;
      CHECK(need <= options.cluster.memory_bytes.value_or(need));
    }
    CHECK((FormatTable(result, options).find("recompute") != std::string::npos) == any);
    return any;
  };
  CHECK_FALSE(recomputes());
  options.cluster.memory_bytes = 9'000'000;
  CHECK_FALSE(recomputes());
  options.cluster.memory_bytes = 2'200'000;
  CHECK(recomputes());
  options.allow_recompute = false;
  const auto plans = [&] {
    try {
      return !recomputes();
    } catch (const Error& e) {
      CHECK_THAT(e.what(), ContainsSubstring("no plan fits"));
      return true;
    }
  };
  CHECK(plans());
}

TEST_CASE("predictions of a worker are those of its simulated run") {
  const Profile profile = RandomProfile(12, 9);
  const PartitionOptions options = Options(4, 2e6);
  const PartitionResult result = Partition(profile, options);
  const int64_t minibatches = 12 * 40;
  const SimulatedRun run = SimulateRun("1f1b", result.shape, result.pipeline, minibatches, false);
  for (const auto& worker : run.workers) {
    const auto w = static_cast<size_t>(worker.id);
    const auto count = static_cast<double>(minibatches);
    CHECK(static_cast<double>(worker.bytes_sent) / count ==
          Approx(result.plan.predicted->bytes_sent[w]).margin(1));
    CHECK(worker.compute_ms / count == Approx(result.plan.predicted->compute_ms[w]));
  }
  CHECK(run.total_ms / static_cast<double>(minibatches) ==
        Approx(result.predicted.minibatch_ms).epsilon(0.1));
}

TEST_CASE("an explanation tells what links and workers change, and what bounds the others") {
  const Profile profile = RandomProfile(3, 8, false);
  PartitionOptions options = Options(4, 1.25e5);
  options.cluster.memory_bytes = 500'000;
  const PartitionResult result = Partition(profile, options);
  const std::string text = Explain(profile, options, result);
  for (const char* const words :
       {"links of 0.1 Gbit/s", "one worker more", "two workers fewer", "1 GB more memory",
        "data parallel", "straight", "model parallel", "one worker", "stage 0"}) {
    CHECK_THAT(text, ContainsSubstring(words));
  }
  CHECK(Explain(profile, options, result) == text);
}

TEST_CASE("words that are not known are answered with those that are") {
  const Profile profile = RandomProfile(6, 4);
  PartitionOptions options = Options(2, 1e6);
  options.schedule = "1f1";
  CHECK_THROWS_WITH(Partition(profile, options), ContainsSubstring("did you mean \"1f1b\"?"));
  CHECK_THROWS_WITH(ParseStrategy("dataparallel"),
                    ContainsSubstring("did you mean \"data-parallel\"?"));
  CHECK_THROWS_WITH(ParseCostModel("exact"), ContainsSubstring("runtime, arxiv"));
}

TEST_CASE("an unlimited network balances the stages") {
  const Profile profile = RandomProfile(7, 12, false);
  double sum = 0;
  for (const LayerCost& layer : profile.layers) sum += layer.compute_ms();
  const PartitionResult result = Partition(profile, Options(4, kUnlimitedBytesPerSecond));
  CHECK(result.bottleneck_ms == Approx(sum / 4));
}

}  // namespace
}  // namespace pd
