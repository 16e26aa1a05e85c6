// Reads, checks and writes plan/1. People edit plans by hand, so a plan is checked against its
// model (or, without one, against its costs) before anybody uses it: after ReadPlan only the
// schedule's name is open, which lib/schedule knows.
#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "plan/device.h"
#include "plan/layer_costs.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;

// The layers that a plan must place, in topological order, each with the layers that it reads.
struct Graph {
  std::vector<std::string> names;
  std::vector<std::vector<int>> producers;
  std::unordered_map<std::string, int> index;

  void Add(const std::string& name, std::vector<int> reads) {
    index.emplace(name, static_cast<int>(names.size()));
    names.push_back(name);
    producers.push_back(std::move(reads));
  }
};

Graph GraphOf(const Model& model) {
  Graph graph;
  for (const Model::Node& node : model.layers()) {
    std::vector<int> reads;
    for (const TensorId input : node.inputs) {
      if (model.ProducerOf(input) >= 0) reads.push_back(model.ProducerOf(input));
    }
    graph.Add(node.layer->name(), std::move(reads));
  }
  return graph;
}

Graph GraphOf(const std::vector<LayerCost>& layers) {
  Graph graph;
  for (const LayerCost& layer : layers) {
    std::vector<int> reads;
    for (const std::string& input : layer.inputs) {
      const auto found = graph.index.find(input);
      if (found != graph.index.end()) reads.push_back(found->second);
    }
    const int last = static_cast<int>(graph.names.size()) - 1;
    if (layer.inputs.empty() && last >= 0) reads.push_back(last);
    graph.Add(layer.name, std::move(reads));
  }
  return graph;
}

StagePlan ReadStage(const JsonView& json) {
  json.CheckKeys({"layers", "workers", "in_flight", "recompute"});
  StagePlan stage;
  const JsonView layers = json.At("layers");
  for (const JsonView& layer : layers.Items()) stage.layers.push_back(layer.String());
  if (stage.layers.empty()) layers.Fail("one or more layers", "none");
  const JsonView workers = json.At("workers");
  for (const JsonView& worker : workers.Items()) {
    stage.workers.push_back(static_cast<int>(worker.Int(0, kMaxWorkers - 1)));
  }
  if (stage.workers.empty()) workers.Fail("one or more workers", "none");
  if (const auto depth = json.Find("in_flight")) {
    stage.in_flight = static_cast<int>(depth->Int(1, kMaxInFlight));
  }
  if (const auto recompute = json.Find("recompute")) stage.recompute = recompute->Bool();
  return stage;
}

// Each layer in exactly one stage, in the graph's order inside it. Returns the stage of each layer.
std::vector<int> CheckPlacement(const std::vector<JsonView>& stages, const Plan& plan,
                                const Graph& graph) {
  std::vector<int> stage_of(graph.names.size(), -1);
  for (size_t s = 0; s < stages.size(); ++s) {
    const std::vector<JsonView> items = stages[s].At("layers").Items();
    int before = -1;
    for (size_t i = 0; i < items.size(); ++i) {
      const std::string& name = plan.stages[s].layers[i];
      const auto found = graph.index.find(name);
      if (found == graph.index.end()) {
        const std::string near = Nearest(name, {graph.names.begin(), graph.names.end()});
        items[i].Fail("the name of a layer",
                      fmt::format("unknown \"{}\"{}", name,
                                  near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
      }
      int& at = stage_of[static_cast<size_t>(found->second)];
      PD_REQUIRE(at < 0, "{}: {}: layer \"{}\" stands in stage {} and {}, expected in exactly one",
                 items[i].file(), items[i].pointer(), name, at,
                 at == static_cast<int>(s) ? "there again" : fmt::format("in stage {}", s));
      at = static_cast<int>(s);
      if (found->second < before) {
        items[i].Fail(
            fmt::format("the layers of a stage in the model's order, \"{}\" before \"{}\"", name,
                        plan.stages[s].layers[i - 1]));
      }
      before = found->second;
    }
  }
  return stage_of;
}

void CheckStages(const JsonView& json, const Plan& plan, const Graph& graph) {
  const std::vector<JsonView> stages = json.Items();
  const std::vector<int> stage_of = CheckPlacement(stages, plan, graph);
  for (size_t l = 0; l < stage_of.size(); ++l) {
    PD_REQUIRE(stage_of[l] >= 0, "{}: {}: layer \"{}\" stands in no stage, expected in exactly one",
               json.file(), json.pointer(), graph.names[l]);
  }
  for (size_t l = 0; l < stage_of.size(); ++l) {
    for (const int input : graph.producers[l]) {
      const int producer = stage_of[static_cast<size_t>(input)];
      if (producer <= stage_of[l]) continue;
      stages[static_cast<size_t>(stage_of[l])].Fail(
          fmt::format("what layer \"{}\" reads in this stage or before", graph.names[l]),
          fmt::format("\"{}\" in stage {}", graph.names[static_cast<size_t>(input)], producer));
    }
  }
}

void CheckWorkers(const JsonView& json, const Plan& plan) {
  std::unordered_map<int, size_t> stage_of;
  const std::vector<JsonView> stages = json.Items();
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const JsonView& item : stages[s].At("workers").Items()) {
      const int rank = static_cast<int>(item.Int(0, kMaxWorkers - 1));
      const auto [at, fresh] = stage_of.emplace(rank, s);
      PD_REQUIRE(fresh, "{}: {}: worker {} stands in stage {} and {}, expected in one", item.file(),
                 item.pointer(), rank, at->second,
                 at->second == s ? "there again" : fmt::format("in stage {}", s));
      if (plan.cluster && rank >= plan.cluster->workers()) {
        item.Fail(fmt::format("a worker of the cluster, 0 to {}", plan.cluster->workers() - 1));
      }
    }
  }
}

// Stage s + 1 runs (D − 1)·r minibatches ahead of its backward passes; the stage before must let as
// many out before it needs a gradient back, or both wait for ever.
void CheckDepths(const JsonView& json, const Plan& plan) {
  if (plan.schedule != "1f1b") return;
  const std::vector<JsonView> stages = json.Items();
  for (size_t s = 1; s < stages.size(); ++s) {
    const auto before = static_cast<int>(s) - 1;
    const auto replicas = static_cast<int64_t>(plan.stages[s].workers.size());
    const int64_t ahead = int64_t{plan.in_flight(before) - 1} *
                          static_cast<int64_t>(plan.stages[s - 1].workers.size());
    const int depth = plan.in_flight(before + 1);
    if ((depth - 1) * replicas <= ahead) continue;
    stages[s].Fail(
        fmt::format("in_flight of at most {} (stage {} lets no more out, with in_flight {})",
                    ahead / replicas + 1, before, plan.in_flight(before)),
        fmt::format("{}", depth));
  }
}

// One value a worker; absent keys give none, unless `required`.
template <typename Value, typename Read>
std::vector<Value> ReadPerWorker(const JsonView& json, std::string_view key, bool required,
                                 int workers, const Read& read) {
  std::vector<Value> values;
  const auto found = json.Find(key);
  if (!found && !required) return values;
  const JsonView list = json.At(key);
  for (const JsonView& item : list.Items()) values.push_back(read(item));
  if (static_cast<int>(values.size()) != workers) {
    list.Fail(fmt::format("{} numbers, one a worker", workers), fmt::format("{}", values.size()));
  }
  return values;
}

Predicted ReadPredicted(const JsonView& json, const Plan& plan) {
  json.CheckKeys({"minibatch_ms", "samples_per_s", "data_parallel_samples_per_s", "memory_bytes",
                  "compute_ms", "idle_share", "bytes_sent", "bytes_received"});
  Predicted predicted;
  predicted.minibatch_ms = json.At("minibatch_ms").Number(0, kMaxPredicted);
  predicted.samples_per_s = json.At("samples_per_s").Number(0, kMaxPredicted);
  predicted.data_parallel_samples_per_s =
      json.At("data_parallel_samples_per_s").Number(0, kMaxPredicted);
  const auto bytes = [](const JsonView& item) { return item.Int(0, kMaxBytes); };
  const auto numbers = [&](std::string_view key, double most) {
    return ReadPerWorker<double>(json, key, false, plan.world_size(),
                                 [most](const JsonView& item) { return item.Number(0, most); });
  };
  const int workers = plan.world_size();
  predicted.memory_bytes = ReadPerWorker<int64_t>(json, "memory_bytes", true, workers, bytes);
  predicted.compute_ms = numbers("compute_ms", kMaxPredicted);
  predicted.idle_share = numbers("idle_share", 1);
  predicted.bytes_sent = ReadPerWorker<int64_t>(json, "bytes_sent", false, workers, bytes);
  predicted.bytes_received = ReadPerWorker<int64_t>(json, "bytes_received", false, workers, bytes);
  // A run is compared with all four.
  for (const char* key : {"compute_ms", "idle_share", "bytes_sent", "bytes_received"}) {
    const bool first = json.Find("compute_ms").has_value();
    if (json.Find(key).has_value() == first) continue;
    json.Fail("all of compute_ms, idle_share, bytes_sent, bytes_received, or none",
              fmt::format("{}{}", first ? "no " : "only ", key));
  }
  return predicted;
}

Json PredictedJson(const Predicted& predicted) {
  Json json = {{"minibatch_ms", predicted.minibatch_ms},
               {"samples_per_s", predicted.samples_per_s},
               {"data_parallel_samples_per_s", predicted.data_parallel_samples_per_s},
               {"memory_bytes", predicted.memory_bytes}};
  if (!predicted.compute_ms.empty()) json["compute_ms"] = predicted.compute_ms;
  if (!predicted.idle_share.empty()) json["idle_share"] = predicted.idle_share;
  if (!predicted.bytes_sent.empty()) json["bytes_sent"] = predicted.bytes_sent;
  if (!predicted.bytes_received.empty()) json["bytes_received"] = predicted.bytes_received;
  return json;
}

Json StageJson(const StagePlan& stage) {
  Json json;
  json["layers"] = stage.layers;
  json["workers"] = stage.workers;
  if (stage.in_flight) json["in_flight"] = *stage.in_flight;
  if (stage.recompute) json["recompute"] = true;
  return json;
}

}  // namespace

int Plan::world_size() const {
  if (cluster) return cluster->workers();
  int size = 0;
  for (const StagePlan& stage : stages) {
    for (const int worker : stage.workers) size = std::max(size, worker + 1);
  }
  return size;
}

int Plan::in_flight(int s) const {
  const StagePlan& stage = stages[static_cast<size_t>(s)];
  if (stage.in_flight) return *stage.in_flight;
  size_t workers = 0;
  for (size_t t = static_cast<size_t>(s); t < stages.size(); ++t)
    workers += stages[t].workers.size();
  return static_cast<int>((workers + stage.workers.size() - 1) / stage.workers.size());
}

Plan ReadPlan(const JsonView& json) {
  CheckFormat(json, "plan");
  json.CheckKeys({"format", "command", "batch_size", "schedule", "stages", "predicted", "cluster",
                  "device", "layers", "model"});
  Plan plan;
  if (const auto command = json.Find("command")) plan.command = command->String();
  if (const auto device = json.Find("device")) plan.device = ReadDevice(*device);
  plan.batch_size = json.At("batch_size").Int(1, kMaxBatchSize);
  if (const auto schedule = json.Find("schedule")) plan.schedule = schedule->String();
  if (const auto cluster = json.Find("cluster")) plan.cluster = ReadCluster(*cluster);
  const JsonView stages = json.At("stages");
  for (const JsonView& stage : stages.Items()) plan.stages.push_back(ReadStage(stage));
  if (plan.stages.empty()) stages.Fail("one or more stages", "none");

  plan.model = json.Find("model");
  const auto layers = json.Find("layers");
  if (!plan.model && !layers) json.Fail("a key \"model\", or \"layers\" with costs", "neither");
  std::optional<Model> model;
  if (plan.model) model = Model::Parse(*plan.model);
  if (layers) plan.layers = ReadLayerCosts(*layers, model ? &*model : nullptr);

  CheckStages(stages, plan, model ? GraphOf(*model) : GraphOf(plan.layers));
  CheckWorkers(stages, plan);
  CheckDepths(stages, plan);
  if (const auto predicted = json.Find("predicted"))
    plan.predicted = ReadPredicted(*predicted, plan);
  return plan;
}

std::string WritePlan(const Plan& plan) {
  Json json;
  json["format"] = "pipedream.plan/1";
  if (!plan.command.empty()) json["command"] = plan.command;
  json["batch_size"] = plan.batch_size;
  json["schedule"] = plan.schedule;
  json["stages"] = Json::array();
  for (const StagePlan& stage : plan.stages) json["stages"].push_back(StageJson(stage));
  if (plan.predicted) json["predicted"] = PredictedJson(*plan.predicted);
  if (plan.device) json["device"] = DeviceJson(*plan.device);
  if (plan.cluster) json["cluster"] = ClusterJson(*plan.cluster);
  if (!plan.layers.empty()) json["layers"] = LayerCostsJson(plan.layers);
  if (plan.model) json["model"] = Embedded(*plan.model);
  return WriteJson(json);
}

}  // namespace pd
