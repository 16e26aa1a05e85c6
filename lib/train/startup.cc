#include "train/startup.h"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "plan/timed_model.h"
#include "schedule/schedule.h"

namespace pd {
namespace {

using Json = nlohmann::json;

std::string Hex(uint64_t digest) { return fmt::format("{:016x}", digest); }

std::string BinaryDigest() { return Hex(HashBytes(ReadFile("/proc/self/exe"))); }

std::string ArgumentsDigest(const TrainArguments& arguments) {
  std::string all = fmt::format("{}\n{}", arguments.plan, arguments.config);
  for (const auto& [key, text] : arguments.flags) all += fmt::format("\n{}={}", key, text);
  return Hex(HashBytes(all));
}

void CompareHellos(const std::vector<std::string>& hellos) {
  const Json first = Json::parse(hellos[0]);
  for (size_t r = 1; r < hellos.size(); ++r) {
    const Json other = Json::parse(hellos[r]);
    for (const auto& [key, what] :
         {std::pair("binary", "another program"), std::pair("arguments", "other arguments")}) {
      if (other[key] == first[key]) continue;
      throw CollectiveError(
          ErrorCode::kInvalidInput,
          fmt::format("rank {} on {} was started with {} than rank 0 on {} (digests {} and {})", r,
                      other["host"].get<std::string>(), what, first["host"].get<std::string>(),
                      other[key].get<std::string>(), first[key].get<std::string>()));
    }
  }
}

void CheckSchedule(const Plan& plan) {
  const std::vector<std::string_view> known = ScheduleNames();
  if (std::find(known.begin(), known.end(), plan.schedule) == known.end()) {
    std::string list;
    for (const std::string_view name : known)
      list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
    Throw(ErrorCode::kInvalidInput, "schedule: expected one of {}, found \"{}\"", list,
          plan.schedule);
  }
}

Agreement Parse(const std::string& plan_text, const std::string& plan_name,
                const std::string& config_text, const std::string& config_name) {
  Agreement agreement;
  agreement.plan = ReadPlan(JsonView::Parse(plan_text, plan_name));
  agreement.config.Merge(
      JsonView::Parse(config_text, config_name.empty() ? "config" : config_name));
  if (agreement.config.device == "timed") agreement.plan.model = TimedModel(agreement.plan);
  PD_REQUIRE(agreement.plan.model.has_value(),
             "{}: /model: expected a model, found none: a plan made from a profile without a model "
             "cannot be trained, only rehearsed with --device timed",
             plan_name);
  if (!agreement.config.schedule.empty()) agreement.plan.schedule = agreement.config.schedule;
  agreement.model = std::make_unique<Model>(Model::Parse(*agreement.plan.model));
  CheckSchedule(agreement.plan);
  agreement.plan_digest = Hex(HashBytes(plan_text));
  agreement.config_digest = Hex(HashBytes(config_text));
  agreement.binary_digest = BinaryDigest();
  return agreement;
}

// The plan's text and the resolved config, as one JSON text.
std::string ReadTexts(const TrainArguments& arguments) {
  TrainConfig config;
  if (!arguments.config.empty()) {
    config.Merge(JsonView::Parse(ReadFile(arguments.config), arguments.config));
  }
  for (const auto& [key, text] : arguments.flags) {
    std::string flag = fmt::format("--{}", key);
    std::replace(flag.begin(), flag.end(), '_', '-');
    config.Set(key, text, flag);
  }
  config.Validate(!arguments.check);
  for (const std::string& input : {arguments.plan, arguments.config}) {
    if (input.empty()) continue;
    RefuseOverwrite(input, config.metrics, "--metrics");
    RefuseOverwrite(input, config.trace, "--trace");
  }
  RefuseOverwrite(config.metrics, config.trace, "--trace", "--metrics'");
  if (!arguments.check) {
    RequireWritable(config.metrics, "--metrics", Output::kInPlace);
    if (!config.trace.empty()) RequireWritable(config.trace, "--trace", Output::kInPlace);
  }
  const std::string name = arguments.plan == "-" ? "standard input" : arguments.plan;
  const std::string text = ReadFile(arguments.plan);
  Parse(text, name, config.ToJson(),
        arguments.config);  // refuses here, on the rank that has the file
  return Json({{"plan", text}, {"name", name}, {"config", config.ToJson()}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::vector<std::string> Together(Comm& comm, const std::function<std::string()>& work) {
  std::string mine;
  try {
    mine = fmt::format("={}", work());
  } catch (const RankError& e) {
    mine = fmt::format("{}!{}", static_cast<int>(e.code()), e.what());
  } catch (const Error& e) {
    mine = fmt::format("{}:{}", static_cast<int>(e.code()), e.what());
  } catch (const std::bad_alloc&) {
    mine = fmt::format("{}:out of memory", static_cast<int>(ErrorCode::kDevice));
  } catch (const std::exception& e) {
    mine = fmt::format("{}:{}", static_cast<int>(ErrorCode::kDevice), e.what());
  }
  std::vector<std::string> all = comm.GatherAll(mine);
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r][0] == '=') {
      all[r].erase(0, 1);
      continue;
    }
    const auto code = static_cast<ErrorCode>(all[r][0] - '0');
    const std::string_view text = std::string_view(all[r]).substr(2);
    const bool named = r == 0 || all[r][1] == '!';
    throw CollectiveError(code, named ? std::string(text) : fmt::format("rank {}: {}", r, text));
  }
  return all;
}

Agreement ReadArguments(const TrainArguments& arguments) {
  const Json texts = Json::parse(ReadTexts(arguments));
  return Parse(texts["plan"], texts["name"], texts["config"], arguments.config);
}

Agreement AgreeAtStart(const TrainArguments& arguments, Comm& comm, const std::string& host) {
  const Json hello = {
      {"host", host}, {"binary", BinaryDigest()}, {"arguments", ArgumentsDigest(arguments)}};
  const std::vector<std::string> hellos = comm.GatherAll(hello.dump());
  CompareHellos(hellos);
  // The plan may come through a pipe from tools that still work: nobody's fault if it takes long.
  const StallLimits limits = comm.limits();
  comm.SetLimits({.report_s = 1e9, .fail_s = 1e9});
  const std::vector<std::string> texts =
      Together(comm, [&] { return comm.rank() == 0 ? ReadTexts(arguments) : std::string(); });
  comm.SetLimits(limits);
  const Json text = Json::parse(texts[0]);
  Agreement agreement = Parse(text["plan"], text["name"], text["config"], arguments.config);
  for (const std::string& each : hellos) agreement.hosts.push_back(Json::parse(each)["host"]);
  return agreement;
}

Cut CutOf(const Agreement& agreement) {
  std::vector<std::vector<std::string>> stages;
  for (const StagePlan& stage : agreement.plan.stages) stages.push_back(stage.layers);
  return MakeCut(*agreement.model, stages);
}

PipelineSpec MakeSpec(const Agreement& agreement, const Cut& cut) {
  PipelineSpec spec;
  spec.model = agreement.model.get();
  spec.cut = &cut;
  for (size_t s = 0; s < agreement.plan.stages.size(); ++s) {
    const StagePlan& stage = agreement.plan.stages[s];
    spec.shape.stages.push_back({.replicas = static_cast<int>(stage.workers.size()),
                                 .in_flight = agreement.plan.in_flight(static_cast<int>(s))});
    spec.ranks.push_back(stage.workers);
    spec.recompute.push_back(stage.recompute);
  }
  const std::optional<Cluster>& cluster = agreement.plan.cluster;
  if (cluster) spec.machine_ranks = cluster->machine_workers();
  spec.schedule = agreement.plan.schedule;
  spec.batch_size = agreement.plan.batch_size;
  spec.seed = static_cast<uint64_t>(agreement.config.seed);
  spec.momentum = agreement.config.momentum;
  spec.weight_decay = agreement.config.weight_decay;
  return spec;
}

std::optional<std::pair<int, int>> RoleOf(const Plan& plan, int rank) {
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const std::vector<int>& workers = plan.stages[s].workers;
    const auto at = std::find(workers.begin(), workers.end(), rank);
    if (at != workers.end())
      return std::pair(static_cast<int>(s), static_cast<int>(at - workers.begin()));
  }
  return std::nullopt;
}

}  // namespace pd
