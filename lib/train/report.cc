#include "train/report.h"

#include <unistd.h>

#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/units.h"

namespace pd {

using Json = nlohmann::json;

std::string RankInfo::Pack() const {
  return Json({{"rank", rank},
               {"stage", stage},
               {"replica", replica},
               {"host", host},
               {"device", device},
               {"threads", threads},
               {"cores", cores},
               {"host_cores", host_cores},
               {"machine", machine},
               {"in_flight", in_flight},
               {"memory", memory_bytes}})
      .dump();
}

RankInfo RankInfo::Unpack(const std::string& text) {
  const Json j = Json::parse(text);
  RankInfo info;
  info.rank = j["rank"];
  info.stage = j["stage"];
  info.replica = j["replica"];
  info.host = j["host"];
  info.device = j["device"];
  info.threads = j["threads"];
  info.cores = j["cores"];
  info.host_cores = j["host_cores"];
  info.machine = j["machine"];
  info.in_flight = j["in_flight"];
  info.memory_bytes = j["memory"];
  return info;
}

std::string RankInfo::Role() const {
  return stage < 0 ? "idle" : fmt::format("stage {} replica {}", stage, replica);
}

std::string RankTotals::Pack() const {
  return Json({{"rank", rank},
               {"stage", stage},
               {"compute_ms", compute_ms},
               {"idle_ms", idle_ms},
               {"sent", bytes_sent},
               {"received", bytes_received},
               {"peak", peak_memory_bytes}})
      .dump();
}

RankTotals RankTotals::Unpack(const std::string& text) {
  const Json j = Json::parse(text);
  RankTotals totals;
  totals.rank = j["rank"];
  totals.stage = j["stage"];
  totals.compute_ms = j["compute_ms"];
  totals.idle_ms = j["idle_ms"];
  totals.bytes_sent = j["sent"];
  totals.bytes_received = j["received"];
  totals.peak_memory_bytes = j["peak"];
  return totals;
}

std::string LayerSpan(const StagePlan& stage) {
  if (stage.layers.size() == 1) return stage.layers[0];
  return fmt::format("{} … {} ({})", stage.layers.front(), stage.layers.back(),
                     stage.layers.size());
}

std::string StartTable(const Plan& plan, const std::vector<RankInfo>& ranks) {
  std::string text =
      fmt::format("{:>4}  {:<12} {:>5} {:>7}  {:>9}  {:>9}  {:>7}  {:<18} layers\n", "rank", "host",
                  "stage", "replica", "in flight", "memory", "threads", "device");
  for (const RankInfo& r : ranks) {
    if (r.stage < 0) {
      text += fmt::format("{:>4}  {:<12} {:>5}\n", r.rank, r.host, "idle");
      continue;
    }
    text += fmt::format("{:>4}  {:<12} {:>5} {:>7}  {:>9}  {:>9}  {:>3} of {:<2} {:<18} {}\n",
                        r.rank, r.host, r.stage, r.replica, r.in_flight,
                        FormatBytes(static_cast<double>(r.memory_bytes)), r.threads, r.cores,
                        r.device, LayerSpan(plan.stages[static_cast<size_t>(r.stage)]));
  }
  text.pop_back();
  return text;
}

std::string EndTable(const std::vector<RankTotals>& ranks, double minibatch_ms,
                     double predicted_ms) {
  std::string text = fmt::format("{:>4}  {:>5}  {:>11}  {:>8}  {:>9}  {:>9}  {:>11}\n", "rank",
                                 "stage", "compute", "idle", "sent", "received", "peak memory");
  for (const RankTotals& r : ranks) {
    text += fmt::format("{:>4}  {:>5}  {:>9.1f} s  {:>6.1f} s  {:>9}  {:>9}  {:>11}\n", r.rank,
                        r.stage < 0 ? "idle" : std::to_string(r.stage), r.compute_ms * 1e-3,
                        r.idle_ms * 1e-3, FormatBytes(static_cast<double>(r.bytes_sent)),
                        FormatBytes(static_cast<double>(r.bytes_received)),
                        FormatBytes(static_cast<double>(r.peak_memory_bytes)));
  }
  text += fmt::format("minibatch: {:.2f} ms measured", minibatch_ms);
  if (predicted_ms > 0) text += fmt::format(", {:.2f} ms predicted", predicted_ms);
  return text;
}

std::vector<std::string> ThreadWarnings(const std::vector<RankInfo>& ranks) {
  std::vector<std::string> warnings;
  struct Host {
    std::string name;
    int threads = 0, cores = 1, ranks = 0;
  };
  std::map<std::string, Host> hosts;  // by machine: virtual hosts share the cores of one
  for (const RankInfo& r : ranks) {
    if (r.stage < 0) continue;
    Host& host = hosts[r.machine];
    if (host.ranks == 0) host.name = r.host;
    host.threads += r.threads;
    host.cores = r.host_cores;
    ++host.ranks;
    if (r.threads > r.cores) {
      warnings.push_back(fmt::format(
          "rank {} on {}: {} threads but {} usable core{}: mpirun --bind-to none, or fewer "
          "--threads",
          r.rank, r.host, r.threads, r.cores, r.cores == 1 ? "" : "s"));
    }
  }
  for (const auto& [id, host] : hosts) {
    if (host.threads > host.cores) {
      warnings.push_back(fmt::format("{} threads of {} ranks share the {} core{} of {}",
                                     host.threads, host.ranks, host.cores,
                                     host.cores == 1 ? "" : "s", host.name));
    } else if (host.cores / host.ranks > host.threads / host.ranks) {
      warnings.push_back(
          fmt::format("{} of the {} cores of {} idle: mpirun --bind-to none and "
                      "--threads {} would use them",
                      host.cores - host.threads, host.cores, host.name, host.cores / host.ranks));
    }
  }
  return warnings;
}

Progress::Progress(std::string_view mode)
    : on_(mode == "always" || (mode == "auto" && ::isatty(STDERR_FILENO) == 1)),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::Show(int64_t epoch, int64_t epochs, int64_t minibatch, int64_t minibatches,
                    double loss, double accuracy, double samples_per_s, double eta_s) {
  const int64_t now = NowNs();
  const int64_t pause_ns = terminal_ ? 200'000'000 : 2'000'000'000;
  if (!on_ || now - last_ns_ < pause_ns) return;
  last_ns_ = now;
  const auto eta = static_cast<int64_t>(eta_s);
  const std::string line = fmt::format(
      "epoch {}/{}  minibatch {}/{}  loss {:.4f}{}  {:.0f} samples/s  ETA {}:{:02}", epoch, epochs,
      minibatch, minibatches, loss, accuracy < 0 ? "" : fmt::format("  accuracy {:.4f}", accuracy),
      samples_per_s, eta / 60, eta % 60);
  const std::string text = terminal_ ? "\r\033[K" + line : line + "\n";
  shown_ = terminal_;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void Progress::Clear() {
  if (!shown_) return;
  shown_ = false;
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, "\r\033[K", 4);
}

}  // namespace pd
