// What would change a plan, and why others lose. Each "what if" plans anew on a changed cluster.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/units.h"
#include "partition/aligned.h"
#include "partition/partition.h"
#include "partition/replicas.h"

namespace pd {
namespace {

constexpr int64_t kGigabyte = 1'000'000'000;

// The next rate that hardware is sold with, above `bytes_per_s`; twice as fast beyond the list.
double NextRate(double bytes_per_s) {
  constexpr std::array kGbps = {0.1, 1.0, 2.5, 10.0, 25.0, 40.0, 50.0, 100.0, 200.0, 400.0, 800.0};
  for (const double gbps : kGbps) {
    const double rate = gbps * 1e9 / 8;
    if (rate > bytes_per_s * 1.01) return rate;
  }
  return 2 * bytes_per_s;
}

std::string RateOf(double bytes_per_s) { return fmt::format("{:.4g} Gbit/s", bytes_per_s * 8e-9); }

class Explainer {
 public:
  Explainer(const Profile& profile, const PartitionOptions& options, const PartitionResult& result)
      : profile_(profile), options_(options), result_(result) {
    options_.cluster.levels.clear();
    for (const Cluster::Level& level : options.cluster.levels) {
      if (level.workers > 1 || options.cluster.levels.size() == 1) {
        options_.cluster.levels.push_back(level);
      }
    }
    options_.compare = false;
    if (options_.cluster.levels.empty()) options_.cluster.levels.push_back({1, 1e9, 0});
  }

  std::string Text() {
    rows_ = {{"if there were", "plan", "minibatch", "as fast"}};
    FasterLinks();
    Workers();
    Memory();
    const std::string changes = Aligned(rows_, 2);
    rows_ = {{"instead", "plan", "minibatch", "at best", "bound by"}};
    Instead("data parallel", result_.data_parallel, false);
    Instead("straight", result_.straight, false);
    Instead("model parallel", result_.model_parallel, true);
    Instead("one worker", result_.one_worker, false);
    return fmt::format("\n{}\n{}", changes, Aligned(rows_, 2));
  }

 private:
  void Add(const std::string& what, const PartitionOptions& changed) {
    try {
      const PartitionResult other = Partition(profile_, changed);
      const double ratio = result_.predicted.minibatch_ms / other.predicted.minibatch_ms;
      rows_.push_back({what, other.predicted.replicas, FormatMs(other.predicted.minibatch_ms),
                       fmt::format("{:.2f} times", ratio)});
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kInvalidInput) throw;
      rows_.push_back({what, "no plan fits", "", ""});
    }
  }

  void FasterLinks() {
    const std::vector<Cluster::Level>& levels = options_.cluster.levels;
    for (size_t l = 0; l < levels.size(); ++l) {
      if (options_.cluster.workers() == 1 ||
          levels[l].bandwidth_bytes_per_s >= kUnlimitedBytesPerSecond) {
        continue;
      }
      PartitionOptions changed = options_;
      const double rate = NextRate(levels[l].bandwidth_bytes_per_s);
      changed.cluster.levels[l].bandwidth_bytes_per_s = rate;
      const char* const whose = levels.size() == 1 ? "links"
                                : l == 0           ? "links in a machine"
                                : l == 1           ? "links of machines"
                                                   : "outer links";
      Add(fmt::format("{} of {}", whose, RateOf(rate)), changed);
    }
  }

  // One worker more or two fewer; where there are machines, a machine.
  void Workers() {
    PartitionOptions changed = options_;
    const bool machines = options_.cluster.levels.size() > 1;
    int& units = changed.cluster.levels.back().workers;
    const int now = units, step = options_.cluster.workers() / now;
    const auto resize = [&](int count) {
      units = count;
      std::vector<double>& speeds = changed.cluster.speeds;
      // Workers more are as fast as the last ones.
      const auto size = static_cast<size_t>(count * step);
      while (!speeds.empty() && speeds.size() < size) {
        speeds.push_back(speeds[speeds.size() - static_cast<size_t>(step)]);
      }
      if (speeds.size() > size) speeds.resize(size);
    };
    if (now == 1 && !machines) return;  // What would join them is not known.
    resize(now + 1);
    Add(machines ? "one machine more" : "one worker more", changed);
    changed.cluster.speeds = options_.cluster.speeds;
    const int fewer = machines ? 1 : 2;
    if (now <= fewer || !options_.replicas.empty()) return;
    resize(now - fewer);
    Add(machines ? "one machine fewer" : "two workers fewer", changed);
  }

  void Memory() {
    if (!options_.cluster.memory_bytes) return;
    PartitionOptions changed = options_;
    *changed.cluster.memory_bytes += kGigabyte;
    Add("1 GB more memory a worker", changed);
  }

  void Instead(const std::string& name, const Prediction& prediction, bool one_in_flight) {
    std::string why = prediction.bound.what;
    // One minibatch after the other: stages that wait for gradients wait for each other.
    const int waiting = one_in_flight ? prediction.stages_in_turn : 0;
    if (waiting > 1) {
      const int stages = static_cast<int>(ParseReplicas(prediction.replicas, "a plan").size());
      why = fmt::format("one minibatch in flight: {}{} stages in turn", waiting,
                        waiting < stages ? fmt::format(" of {}", stages) : "");
    } else if (prediction.minibatch_ms > 1.05 * prediction.bound.ms) {
      why += ", latency and waiting";
    }
    if (!prediction.fits) why += "; does not fit the memory";
    rows_.push_back({name, prediction.replicas, FormatMs(prediction.minibatch_ms),
                     FormatMs(prediction.bound.ms), why});
  }

  const Profile& profile_;
  PartitionOptions options_;
  const PartitionResult& result_;
  std::vector<TableRow> rows_;
};

}  // namespace

std::string Explain(const Profile& profile, const PartitionOptions& options,
                    const PartitionResult& result) {
  return Explainer(profile, options, result).Text();
}

}  // namespace pd
