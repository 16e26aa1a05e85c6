#pragma once

#include <string>

#include "base/json.h"

namespace pd {

inline JsonView ParseText(const std::string& text) { return JsonView::Parse(text, "test.json"); }

/// `text` with the first `from` replaced by `to`; `from` must be there.
inline std::string With(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("no " + from);
  return text.replace(at, from.size(), to);
}

/// A model of four layers with a skip: flat ─▶ fc1 ─▶ sum ─▶ loss, and flat ─▶ sum.
inline std::string ModelText() {
  return R"({"format": "pipedream.model/1", "name": "tiny",
    "inputs": [{"name": "image", "shape": [1, 2, 2]}, {"name": "label", "shape": [], "dtype": "i32"}],
    "layers": [{"name": "flat", "type": "flatten", "inputs": ["image"]},
               {"name": "fc1", "type": "linear", "out_features": 4},
               {"name": "sum", "type": "add", "inputs": ["fc1", "flat"]},
               {"name": "loss", "type": "softmax_cross_entropy", "inputs": ["sum", "label"]}]})";
}

inline std::string CostsText() {
  return R"([
    {"name": "flat", "inputs": ["image"], "forward_ms": 0.1, "backward_ms": 0.2, "activation_bytes": 64, "parameter_bytes": 0},
    {"name": "fc1", "inputs": ["flat"], "forward_ms": 1.5, "backward_ms": 2.25, "activation_bytes": 64, "parameter_bytes": 80,
     "stored_parameter_bytes": 128, "update_ms": 0.125, "stash_bytes": 0, "workspace_bytes": 96, "copy_bytes": 128, "forward_p90_ms": 1.75, "backward_p90_ms": 3},
    {"name": "sum", "inputs": ["fc1", "flat"], "forward_ms": 0.1, "backward_ms": 0.2, "activation_bytes": 64, "parameter_bytes": 0},
    {"name": "loss", "inputs": ["sum", "label"], "forward_ms": 0.1, "backward_ms": 0.2, "activation_bytes": 16, "parameter_bytes": 0}])";
}

inline std::string ProfileText() {
  return R"({"format": "pipedream.profile/1", "batch_size": 4, "minibatches": 20,
    "device": {"kind": "cpu", "name": "a processor", "threads": 1, "libraries": "oneDNN"}, "whole_ms": 4.5,
    "layers": )" +
         CostsText() + R"(, "model": )" + ModelText() + "}";
}

inline std::string ClusterText() {
  return R"({"format": "pipedream.cluster/1",
    "levels": [{"workers": 4, "bandwidth_bytes_per_s": 1.25e8, "latency_ms": 0.1}]})";
}

inline std::string PlanText() {
  return R"({"format": "pipedream.plan/1", "command": "pd-partition", "batch_size": 4, "schedule": "1f1b",
    "stages": [{"layers": ["flat", "fc1"], "workers": [0, 1], "in_flight": 3},
               {"layers": ["sum", "loss"], "workers": [3]}],
    "predicted": {"minibatch_ms": 2.5, "samples_per_s": 1600, "data_parallel_samples_per_s": 800, "memory_bytes": [9, 9, 0, 5]},
    "cluster": )" +
         ClusterText() + R"(, "layers": )" + CostsText() + R"(, "model": )" + ModelText() + "}";
}

}  // namespace pd
