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
/// Throws kInvalidInput for one that does not train in f32.
std::unique_ptr<Backend> MakeTrainingBackend(const TrainConfig& config, int local_rank);
void DescribeDevice(const Backend& backend, RankInfo& info);

/// Says where the plan's costs are not of this model at this batch size, or of another device: then
/// its cut and its predictions are of another run.
std::vector<std::string> CostWarnings(const Agreement& agreement, const Backend& backend);
/// What to say of GPUs: ranks that share one.
std::vector<std::string> DeviceWarnings(const std::vector<RankInfo>& ranks);
/// What "auto" took (`device` is the configured one), and the way of messages between GPUs
/// (`direct`: from and to their memory); lines for people, or none.
std::vector<std::string> DeviceNotes(const std::vector<RankInfo>& ranks, std::string_view device,
                                     bool direct);

}  // namespace pd
