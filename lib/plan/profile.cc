#include <nlohmann/json.hpp>

#include "base/error.h"
#include "plan/layer_costs.h"
#include "plan/plan.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;

DeviceInfo ReadDevice(const JsonView& json) {
  json.CheckKeys({"kind", "name", "threads", "libraries"});
  DeviceInfo device;
  device.kind = json.At("kind").String();
  device.name = json.At("name").String();
  device.threads = static_cast<int>(json.At("threads").Int(1, kMaxWorkers));
  device.libraries = json.At("libraries").String();
  return device;
}

}  // namespace

Profile ReadProfile(const JsonView& json) {
  CheckFormat(json, "profile");
  json.CheckKeys({"format", "batch_size", "minibatches", "device", "whole_ms", "layers", "model"});
  Profile profile;
  profile.batch_size = json.At("batch_size").Int(1, kMaxBatchSize);
  if (const auto count = json.Find("minibatches")) profile.minibatches = count->Int(1, kMaxBytes);
  if (const auto device = json.Find("device")) profile.device = ReadDevice(*device);
  if (const auto whole = json.Find("whole_ms")) profile.whole_ms = whole->Number(0, kMaxMs);
  profile.model = json.Find("model");
  if (profile.model) {
    const Model model = Model::Parse(*profile.model);
    profile.layers = ReadLayerCosts(json.At("layers"), &model);
  } else {
    profile.layers = ReadLayerCosts(json.At("layers"), nullptr);
  }
  return profile;
}

std::string WriteProfile(const Profile& profile) {
  Json json;
  json["format"] = "pipedream.profile/1";
  json["batch_size"] = profile.batch_size;
  if (profile.minibatches) json["minibatches"] = *profile.minibatches;
  if (profile.device) {
    json["device"] = {{"kind", profile.device->kind},
                      {"name", profile.device->name},
                      {"threads", profile.device->threads},
                      {"libraries", profile.device->libraries}};
  }
  if (profile.whole_ms) json["whole_ms"] = *profile.whole_ms;
  json["layers"] = LayerCostsJson(profile.layers);
  if (profile.model) json["model"] = Embedded(*profile.model);
  return WriteJson(json);
}

}  // namespace pd
