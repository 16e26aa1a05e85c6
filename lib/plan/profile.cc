#include <nlohmann/json.hpp>

#include "base/error.h"
#include "plan/device.h"
#include "plan/layer_costs.h"
#include "plan/plan.h"

namespace pd {
namespace {

using Json = nlohmann::ordered_json;

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
    json["device"] = DeviceJson(*profile.device);
  }
  if (profile.whole_ms) json["whole_ms"] = *profile.whole_ms;
  json["layers"] = LayerCostsJson(profile.layers);
  if (profile.model) json["model"] = Embedded(*profile.model);
  return WriteJson(json);
}

}  // namespace pd
