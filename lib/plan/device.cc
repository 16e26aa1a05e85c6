#include "plan/device.h"

#include <nlohmann/json.hpp>

#include "plan/layer_costs.h"

namespace pd {
DeviceInfo ReadDevice(const JsonView& json) {
  json.CheckKeys({"kind", "name", "threads", "libraries"});
  DeviceInfo device;
  device.kind = json.At("kind").String();
  device.name = json.At("name").String();
  device.threads = static_cast<int>(json.At("threads").Int(1, kMaxWorkers));
  device.libraries = json.At("libraries").String();
  return device;
}

nlohmann::ordered_json DeviceJson(const DeviceInfo& device) {
  return {{"kind", device.kind},
          {"name", device.name},
          {"threads", device.threads},
          {"libraries", device.libraries}};
}

}  // namespace pd
