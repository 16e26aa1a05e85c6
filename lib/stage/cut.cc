#include "stage/cut.h"

#include <algorithm>

#include "base/error.h"

namespace pd {
namespace {

int StageOfTensor(const Model& model, const Cut& cut, TensorId tensor) {
  const int producer = model.ProducerOf(tensor);
  return producer < 0 ? 0 : cut.stage_of[producer];
}

// Appends the messages that carry `tensor` forward, one a reading stage.
void AddForward(const Model& model, TensorId tensor, Cut& cut) {
  const int from = StageOfTensor(model, cut, tensor);
  std::vector<int> readers;
  for (const int consumer : model.consumers(tensor)) readers.push_back(cut.stage_of[consumer]);
  std::sort(readers.begin(), readers.end());
  readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  for (const int to : readers) {
    if (to == from) continue;
    cut.messages.push_back(
        {.tensor = tensor, .from = from, .to = to, .gradient = false, .consumers = {}});
  }
}

// Appends the messages that bring the gradient of `tensor` back to its producer.
void AddGradients(const Model& model, TensorId tensor, Cut& cut) {
  if (!model.needs_gradient(tensor)) return;
  const int to = StageOfTensor(model, cut, tensor);
  std::vector<int> consumers = model.consumers(tensor);
  consumers.erase(std::unique(consumers.begin(), consumers.end()), consumers.end());
  // The longest run of last consumers in one stage may travel as a sum.
  const int last_stage = cut.stage_of[consumers.back()];
  auto first_of_run = consumers.end();
  while (first_of_run != consumers.begin() &&
         cut.stage_of[*std::prev(first_of_run)] == last_stage) {
    --first_of_run;
  }
  for (auto it = consumers.begin(); it != first_of_run; ++it) {
    if (cut.stage_of[*it] == to) continue;
    cut.messages.push_back({.tensor = tensor,
                            .from = cut.stage_of[*it],
                            .to = to,
                            .gradient = true,
                            .consumers = {*it}});
  }
  if (last_stage != to) {
    cut.messages.push_back({.tensor = tensor,
                            .from = last_stage,
                            .to = to,
                            .gradient = true,
                            .consumers = {first_of_run, consumers.end()}});
  }
}

Cut MakeCutFromStages(const Model& model, std::vector<int> stage_of, int num_stages) {
  Cut cut;
  cut.stage_of = std::move(stage_of);
  cut.layers.resize(num_stages);
  for (int l = 0; l < model.num_layers(); ++l) {
    cut.layers[cut.stage_of[l]].push_back(l);
    for (const TensorId input : model.layers()[l].inputs) {
      PD_CHECK(StageOfTensor(model, cut, input) <= cut.stage_of[l],
               "layer {} reads from a later stage", model.layers()[l].layer->name());
    }
  }
  for (TensorId t = 0; t < model.num_tensors(); ++t) AddForward(model, t, cut);
  for (TensorId t = model.num_inputs(); t < model.num_tensors(); ++t) {
    if (!model.consumers(t).empty()) AddGradients(model, t, cut);
  }
  for (size_t i = 0; i < cut.messages.size(); ++i) cut.messages[i].tag = static_cast<int>(i);
  return cut;
}

}  // namespace

std::vector<int> Cut::Incoming(int stage, bool gradient) const {
  std::vector<int> found;
  for (const BorderMessage& m : messages) {
    if (m.to == stage && m.gradient == gradient) found.push_back(m.tag);
  }
  return found;
}

std::vector<int> Cut::Outgoing(int stage, bool gradient) const {
  std::vector<int> found;
  for (const BorderMessage& m : messages) {
    if (m.from == stage && m.gradient == gradient) found.push_back(m.tag);
  }
  return found;
}

Cut MakeCut(const Model& model, const std::vector<std::vector<std::string>>& stages) {
  std::vector<int> stage_of(model.num_layers(), -1);
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const std::string& name : stages[s]) {
      const int layer = model.FindLayer(name);
      PD_CHECK(layer >= 0 && stage_of[layer] < 0, "layer {} is unknown or in two stages", name);
      stage_of[layer] = static_cast<int>(s);
    }
  }
  for (int l = 0; l < model.num_layers(); ++l) {
    PD_CHECK(stage_of[l] >= 0, "layer {} is in no stage", model.layers()[l].layer->name());
  }
  return MakeCutFromStages(model, std::move(stage_of), static_cast<int>(stages.size()));
}

Cut MakeWholeCut(const Model& model) {
  return MakeCutFromStages(model, std::vector<int>(model.num_layers(), 0), 1);
}

}  // namespace pd
