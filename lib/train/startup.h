#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/model.h"
#include "pipeline/comm.h"
#include "pipeline/stage_setup.h"
#include "plan/plan.h"
#include "train/config.h"

namespace pd {

/// An error that every rank knows: rank 0 says it, and all end in order with the same status.
class CollectiveError : public Error {
 public:
  using Error::Error;
};

/// An error whose words say which rank it is of: "rank 1 (host, cuda:0 NAME): …".
class RankError : public Error {
 public:
  using Error::Error;
};

/// What the command line of pd-train says.
struct TrainArguments {
  std::string plan;    ///< Path, "-" for standard input.
  std::string config;  ///< Path of a config/1 document, or empty.
  bool check = false;  ///< --check: nothing is trained.
  std::vector<std::pair<std::string, std::string>> flags;  ///< Config keys and their texts.
};

/// What all ranks hold after start-up, equal on each.
struct Agreement {
  TrainConfig config;
  Plan plan;
  std::unique_ptr<Model> model;
  std::vector<std::string> hosts;  ///< One a rank.
  std::string plan_digest, config_digest, binary_digest;
};

/// Runs `work` on every rank; where it throws on any, throws CollectiveError with the first failing
/// rank's words on all. Returns each rank's result.
std::vector<std::string> Together(Comm& comm, const std::function<std::string()>& work);

/// Compares the ranks' programs and arguments, reads plan and config on rank 0 alone, and gives
/// them to all. Throws CollectiveError where ranks differ or a file is refused.
Agreement AgreeAtStart(const TrainArguments& arguments, Comm& comm, const std::string& host);

/// Reads plan and config without other ranks (rank 0's part, and --check).
Agreement ReadArguments(const TrainArguments& arguments);

/// The plan's cut of the model, and what the workers' parts are made of; `cut` outlives it.
Cut CutOf(const Agreement& agreement);
PipelineSpec MakeSpec(const Agreement& agreement, const Cut& cut);

/// The stage and replica of `rank` in the plan, or nothing for an idle one.
std::optional<std::pair<int, int>> RoleOf(const Plan& plan, int rank);

}  // namespace pd
