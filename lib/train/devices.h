#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "train/report.h"
#include "train/startup.h"

namespace pd {

/// The device that `config` names, for the worker that is number `local_rank` of its machine.
/// Describes it in `info`. Throws kInvalidInput for one that does not train in f32.
std::unique_ptr<Backend> MakeTrainingBackend(const TrainConfig& config, int local_rank,
                                             RankInfo& info);

/// Says where the plan's costs are not of this model at this batch size, or of another device: then
/// its cut and its predictions are of another run.
std::vector<std::string> CostWarnings(const Agreement& agreement, const Backend& backend);
/// Refuses (CollectiveError) replicas of one stage that would not train as one: on devices of other
/// kinds, or whose weights lie in memory in other orders (oneDNN's for processors of other kinds),
/// which sums over replicas would mix up. Stages may differ.
void CompareReplicas(const std::vector<RankInfo>& ranks);
/// What to say of GPUs: ranks that share one; none where `tf32` was asked for.
std::vector<std::string> DeviceWarnings(const std::vector<RankInfo>& ranks, bool tf32 = false);
/// Says which ranks take over 1 % more memory than the plan's cluster allows a worker; a line, or
/// none.
std::vector<std::string> MemoryWarnings(const Plan& plan, const std::vector<RankInfo>& ranks);
/// What "auto" took (`device` is the configured one), with CUDA's reason where a GPU that may be
/// there cannot be used; lines for people, or none.
std::vector<std::string> DeviceNotes(const std::vector<RankInfo>& ranks, std::string_view device);
/// The way of messages between GPUs (`direct`: from and to their memory); a line, or none.
std::vector<std::string> MessageNotes(const std::vector<RankInfo>& ranks, bool direct);

}  // namespace pd
