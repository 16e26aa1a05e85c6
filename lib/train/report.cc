#include "train/report.h"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/units.h"

namespace pd {

using Json = nlohmann::ordered_json;

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
               {"label", label},
               {"device_id", device_id},
               {"instructions", instructions},
               {"broken_cuda", broken_cuda},
               {"weights", weights},
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
  info.label = j["label"];
  info.device_id = j["device_id"];
  info.instructions = j["instructions"];
  info.broken_cuda = j["broken_cuda"];
  info.weights = j["weights"];
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
               {"base", base_memory_bytes},
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
  totals.base_memory_bytes = j["base"];
  totals.peak_memory_bytes = j["peak"];
  return totals;
}

std::string LayerSpan(const StagePlan& stage) {
  if (stage.layers.size() == 1) return stage.layers[0];
  return fmt::format("{} … {} ({})", stage.layers.front(), stage.layers.back(),
                     stage.layers.size());
}

std::string StartTable(const Plan& plan, const std::vector<RankInfo>& ranks) {
  size_t width = 18;
  for (const RankInfo& r : ranks) width = std::max(width, r.label.size());
  std::string text =
      fmt::format("{:>4}  {:<12} {:>5} {:>7}  {:>9}  {:>9}  {:>7}  {:<{}} layers\n", "rank", "host",
                  "stage", "replica", "in flight", "memory", "threads", "device", width);
  for (const RankInfo& r : ranks) {
    if (r.stage < 0) {
      text += fmt::format("{:>4}  {:<12} {:>5}\n", r.rank, r.host, "idle");
      continue;
    }
    text += fmt::format(
        "{:>4}  {:<12} {:>5} {:>7}  {:>9}  {:>9}  {:>3} of {:<2} {:<{}} {}\n", r.rank, r.host,
        r.stage, r.replica, r.in_flight,
        r.device == "timed" ? "-" : FormatBytes(static_cast<double>(r.memory_bytes)), r.threads,
        r.cores, r.label, width, LayerSpan(plan.stages[static_cast<size_t>(r.stage)]));
  }
  text.pop_back();
  return text;
}

namespace {

// What one worker does for a minibatch of the pipeline.
struct Share {
  double compute_ms = 0, idle_share = 0, bytes_sent = 0, bytes_received = 0;
  int64_t memory_bytes = 0;
};

Share Measured(const RankTotals& r, const MeasuredRun& run) {
  const auto minibatches = static_cast<double>(std::max<int64_t>(1, run.minibatches));
  return {.compute_ms = r.compute_ms / minibatches,
          .idle_share = r.idle_ms / std::max(1e-9, r.compute_ms + r.idle_ms),
          .bytes_sent = static_cast<double>(r.bytes_sent) / minibatches,
          .bytes_received = static_cast<double>(r.bytes_received) / minibatches,
          .memory_bytes = r.peak_memory_bytes};
}

// The plan knows what training takes; the process holds its libraries and data before.
std::optional<Share> Expected(const RankTotals& r, const Predicted* predicted) {
  const auto rank = static_cast<size_t>(r.rank);
  if (predicted == nullptr || r.stage < 0 || predicted->compute_ms.size() <= rank) return {};
  return Share{.compute_ms = predicted->compute_ms[rank],
               .idle_share = predicted->idle_share[rank],
               .bytes_sent = static_cast<double>(predicted->bytes_sent[rank]),
               .bytes_received = static_cast<double>(predicted->bytes_received[rank]),
               .memory_bytes = predicted->memory_bytes[rank] + r.base_memory_bytes};
}

Json ToJson(const Share& share) {
  return {{"compute_ms", share.compute_ms},
          {"idle_share", share.idle_share},
          {"bytes_sent", share.bytes_sent},
          {"bytes_received", share.bytes_received},
          {"memory_bytes", share.memory_bytes}};
}

std::string Columns(const Share& share, bool memory) {
  const std::string columns =
      fmt::format("{:>7.2f} ms  {:>5.1f} %  {:>9}  {:>9}", share.compute_ms, 100 * share.idle_share,
                  FormatBytes(share.bytes_sent), FormatBytes(share.bytes_received));
  if (!memory) return columns;
  return fmt::format("{}  {:>9}", columns, FormatBytes(static_cast<double>(share.memory_bytes)));
}

}  // namespace

std::string EndTable(const std::vector<RankTotals>& ranks, const MeasuredRun& run,
                     const Predicted* predicted) {
  std::string text =
      fmt::format("{:>4}  {:>5}  {:>9}  {:>10}  {:>7}  {:>9}  {:>9}{}\n", "rank", "stage", "",
                  "compute", "idle", "sent", "received", run.timed ? "" : "     memory");
  for (const RankTotals& r : ranks) {
    text += fmt::format("{:>4}  {:>5}  {:>9}  {}\n", r.rank,
                        r.stage < 0 ? "idle" : std::to_string(r.stage), "measured",
                        Columns(Measured(r, run), !run.timed));
    if (const auto expected = Expected(r, predicted)) {
      text += fmt::format("{:>4}  {:>5}  {:>9}  {}\n", "", "", "predicted",
                          Columns(*expected, !run.timed));
    }
  }
  if (run.timed) text += "no memory: device timed computes nothing\n";
  text += fmt::format("a minibatch: {:.2f} ms measured", run.minibatch_ms);
  if (run.steady_ms > 0) text += fmt::format(" ({:.2f} without fill and drain)", run.steady_ms);
  if (predicted != nullptr) text += fmt::format(", {:.2f} ms predicted", predicted->minibatch_ms);
  return text;
}

std::string WorkersJson(const std::vector<RankTotals>& ranks, const MeasuredRun& run,
                        const Predicted* predicted) {
  Json workers = Json::array();
  for (const RankTotals& r : ranks) {
    const auto expected = Expected(r, predicted);
    workers.push_back({{"rank", r.rank},
                       {"stage", r.stage < 0 ? Json(nullptr) : Json(r.stage)},
                       {"compute_ms", r.compute_ms},
                       {"idle_ms", r.idle_ms},
                       {"bytes_sent", r.bytes_sent},
                       {"bytes_received", r.bytes_received},
                       {"base_memory_bytes", r.base_memory_bytes},
                       {"peak_memory_bytes", r.peak_memory_bytes},
                       {"measured", ToJson(Measured(r, run))},
                       {"predicted", expected ? ToJson(*expected) : Json(nullptr)}});
  }
  return workers.dump();
}

std::vector<std::string> ThreadWarnings(const std::vector<RankInfo>& ranks) {
  std::vector<std::string> warnings;
  struct Host {
    std::string name;
    int threads = 0, cores = 1, ranks = 0;
  };
  std::map<std::string, Host> hosts;  // by machine: virtual hosts share the cores of one
  for (const RankInfo& r : ranks) {
    if (r.stage < 0 || !r.device_id.empty()) continue;  // a GPU's rank needs its core now and then
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
