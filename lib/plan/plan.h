#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace pd {

/// What the planner knows of one layer, for one minibatch of the profile's batch size.
struct LayerCost {
  std::string name;
  std::vector<std::string>
      inputs;  ///< Layers or graph inputs; may be empty in a profile from elsewhere (a chain).
  double forward_ms = 0, backward_ms = 0;
  int64_t activation_bytes = 0;  ///< Its output, which is also the gradient that comes back.
  int64_t parameter_bytes = 0;   ///< Trainable parameters.
  /// As the device stores them, padding included: what versions take and an all-reduce moves.
  std::optional<int64_t> stored_parameter_bytes;
  std::optional<double> update_ms;
  std::optional<int64_t> stash_bytes;
  std::optional<int64_t> workspace_bytes;  ///< Scratch of one of its passes.
  /// What its output takes in the device's own order, where that is another than the messages': a
  /// stage that receives it keeps a copy.
  std::optional<int64_t> copy_bytes;
  std::optional<double> forward_p90_ms, backward_p90_ms;

  int64_t weight_bytes() const { return stored_parameter_bytes.value_or(parameter_bytes); }
  double compute_ms() const { return forward_ms + backward_ms + update_ms.value_or(0); }
};

struct DeviceInfo {
  std::string kind, name;
  int threads = 1;
  std::string libraries;
};

/// profile/1
struct Profile {
  int64_t batch_size = 0;
  std::vector<LayerCost> layers;
  std::optional<JsonView> model;  ///< The model/1 document.
  std::optional<int64_t> minibatches;
  std::optional<DeviceInfo> device;
  std::optional<double> whole_ms;
};

/// A link that never limits anything; the largest bandwidth that a document may name.
inline constexpr double kUnlimitedBytesPerSecond = 1e30;

/// cluster/1
struct Cluster {
  struct Level {
    int workers = 1;
    double bandwidth_bytes_per_s = 0;
    double latency_ms = 0;
  };
  std::vector<Level> levels;  ///< Innermost first.
  std::optional<int64_t> memory_bytes;
  std::vector<double> speeds;  ///< One a worker, or empty.

  int workers() const;
  /// Of a machine: consecutive ones that the innermost level of several joins.
  int machine_workers() const;
};

/// How many replicas of a stage sum their gradients inside a machine first: the k of p > 1 machines
/// with k > 1 replicas each, where `workers`, in replica order, are on p machines, those of one
/// machine behind each other; otherwise all of them. A machine has `machine_workers` consecutive
/// workers.
size_t ReplicasTogether(const std::vector<int>& workers, int machine_workers);

/// One stage of a plan/1 document.
struct StagePlan {
  std::vector<std::string> layers;
  std::vector<int> workers;  ///< MPI ranks; replica i is workers[i].
  std::optional<int>
      in_flight;  ///< Minibatches in flight a replica; absent: the default of design.
  /// Keeps only its inputs from forward to backward pass, and runs the forward pass once more.
  bool recompute = false;
};

struct Predicted {
  double minibatch_ms = 0, samples_per_s = 0, data_parallel_samples_per_s = 0;
  std::vector<int64_t> memory_bytes;  ///< One a worker.
  /// What a run is compared with, for each minibatch of the pipeline: one a worker, or empty.
  std::vector<double> compute_ms, idle_share;
  std::vector<int64_t> bytes_sent, bytes_received;
};

/// plan/1
struct Plan {
  std::optional<JsonView> model;
  int64_t batch_size = 0;
  std::vector<StagePlan> stages;
  std::string schedule = "1f1b";
  std::vector<LayerCost> layers;  ///< Costs it was planned with; may be empty in a plan by hand.
  std::optional<Cluster> cluster;
  std::optional<DeviceInfo> device;  ///< That the costs were measured on.
  std::optional<Predicted> predicted;
  std::string command;

  /// Ranks that the plan needs: the cluster's workers where there is a cluster, else 1 + the
  /// highest rank.
  int world_size() const;
  /// Minibatches in flight at each replica of stage `s`: its in_flight, or ceil((Σ_{t≥s} r_t)/r_s).
  int in_flight(int s) const;
};

/// Strict readers: refuse what does not fit in one line with file, pointer, expected, found. A plan
/// is checked alone (each layer of its model in exactly one stage, stages in topological order and
/// not empty, workers distinct, …) so that pd-train can trust the result.
Profile ReadProfile(const JsonView& json);
Cluster ReadCluster(const JsonView& json);
Plan ReadPlan(const JsonView& json);

/// The documents as text: strict JSON, the same bytes for the same value.
std::string WriteProfile(const Profile& profile);
std::string WriteCluster(const Cluster& cluster);
std::string WritePlan(const Plan& plan);

}  // namespace pd
