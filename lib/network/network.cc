// Ranks go through the same steps in the same order. After each stream they tell each other when
// their middle messages came, so all compute the same result and choose the same next step.
#include "network/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "network/stream.h"

namespace pd {
namespace {

constexpr int kMostRounds = 8;   // of pairs; with more than 8 members some pairs are left out
constexpr int kRepetitions = 5;  // of a level's rate both ways, at least
constexpr int kOneWay = 3;       // of its rate one way
constexpr size_t kMostBytes = 1 << 20, kChunkBytes = 60 << 10, kLeastBytes = 4096;  // of a message
constexpr double kMessages = 32;  // of a stream, at least, where messages need not be the largest
constexpr double kTrialS = 0.05;  // a stream as long as this tells the rate well enough to start
constexpr int kMostTrialMessages = 1000, kMostMessages = 10'000;
constexpr int kLeastPings = 10, kMostPings = 500;
constexpr double kMemoryShare = 0.8;
constexpr double kUneven = 0.8, kHalf = 0.75;  // below these shares a warning is due

double Median(std::vector<double> values) {
  PD_CHECK(!values.empty(), "the median of nothing");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// To four digits: more mean nothing, and files stay readable.
double Rounded(double value) { return ParseNumber(fmt::format("{:.4g}", value), "rate", 0, 1e300); }

using Pairs = std::vector<std::pair<int, int>>;

/// Which ranks meet at a level, whose members are the ranks of a host (inner) or the hosts.
class Level {
 public:
  Level(const HostLayout& layout, bool inner) : layout_(layout), inner_(inner) {}

  int members() const {
    return inner_ ? layout_.ranks_per_host : static_cast<int>(layout_.hosts.size());
  }
  int member(int rank) const {
    return inner_ ? rank % layout_.ranks_per_host : rank / layout_.ranks_per_host;
  }
  /// The rank that `rank` meets where its member meets `other`.
  int peer(int rank, int other) const {
    return inner_ ? rank / layout_.ranks_per_host * layout_.ranks_per_host + other
                  : other * layout_.ranks_per_host + rank % layout_.ranks_per_host;
  }
  /// Ranks with the same number share a link.
  int link(int rank) const { return inner_ ? rank : rank / layout_.ranks_per_host; }
  std::string link_name(int link) const {
    return inner_ ? fmt::format("rank {}", link) : layout_.hosts[link];
  }
  /// One rank a link tells its latency.
  bool pings(int rank) const { return inner_ || rank % layout_.ranks_per_host == 0; }
  const char* name() const { return inner_ ? "on a host" : "between hosts"; }

  /// The rank that `rank` meets in this round, or −1.
  int PeerIn(const Pairs& pairs, int rank) const {
    const int mine = member(rank);
    for (const auto& [a, b] : pairs) {
      if (a == mine) return peer(rank, b);
      if (b == mine) return peer(rank, a);
    }
    return -1;
  }

 private:
  const HostLayout& layout_;
  const bool inner_;
};

/// Rates of the direction from one link to another, a repetition each.
using Rates = std::map<std::pair<int, int>, std::vector<double>>;

class Measurement {
 public:
  Measurement(Comm& comm, const Level& level, const NetworkOptions& options)
      : comm_(comm), level_(level), options_(options) {}

  LinkReport Run() {
    LinkReport report;
    report.name = level_.name();
    report.members = level_.members();
    report.latency_ms = LatencyMs();
    const double stream_bytes = TrialRate() * options_.stream_s;
    const size_t large = MessageBytes(stream_bytes, kMostBytes);
    const size_t small = MessageBytes(stream_bytes, kChunkBytes);
    const auto rounds = PairRounds(level_.members(), kMostRounds);
    const auto both_ways = [&](size_t bytes) {
      Rates rates;
      Repeat(rounds, kRepetitions, [&](const Pairs& pairs, int) {
        Exchange(pairs, {true, true, bytes, Messages(stream_bytes, bytes)}, rates);
      });
      return rates;
    };
    const Rates small_rates = both_ways(small);
    const Rates large_rates = large == small ? small_rates : both_ways(large);
    Rates one;
    Repeat(PairRounds(level_.members(), kOneWay), kOneWay, [&](const Pairs& pairs, int repetition) {
      const bool up = repetition % 2 == 0;
      Exchange(pairs, {up, !up, large, Messages(stream_bytes, large)}, one);
    });
    report.small_bytes_per_s = LevelRate(small_rates);
    report.large_bytes_per_s = LevelRate(large_rates);
    report.both_ways_bytes_per_s = std::max(report.small_bytes_per_s, report.large_bytes_per_s);
    report.one_way_bytes_per_s = LevelRate(one);
    FindSlowest(report.small_bytes_per_s > report.large_bytes_per_s ? small_rates : large_rates,
                report);
    return report;
  }

 private:
  template <typename Work>
  static void Repeat(const std::vector<Pairs>& rounds, int times, const Work& work) {
    const int each =
        (times + static_cast<int>(rounds.size()) - 1) / static_cast<int>(rounds.size());
    int repetition = 0;
    for (int i = 0; i < each; ++i) {
      for (const Pairs& pairs : rounds) work(pairs, repetition++);
    }
  }

  static size_t MessageBytes(double stream_bytes, size_t most) {
    return static_cast<size_t>(std::clamp(
        stream_bytes / kMessages, static_cast<double>(kLeastBytes), static_cast<double>(most)));
  }

  static int Messages(double stream_bytes, size_t bytes) {
    return static_cast<int>(std::clamp(stream_bytes / static_cast<double>(bytes),
                                       double{Stream::kLeastMessages}, double{kMostMessages}));
  }

  /// Messages of a stream up (from the first of each pair to the second), down, or both.
  struct Traffic {
    bool up = true, down = true;
    size_t bytes = 0;
    int messages = 0;
  };

  // Streams between all pairs at once; adds the rate of each direction to `rates`.
  void Exchange(const Pairs& pairs, const Traffic& traffic, Rates& rates) {
    const auto& [up, down, bytes, messages] = traffic;
    const int peer = level_.PeerIn(pairs, comm_.rank());
    Stream::Middle mine;
    if (peer >= 0) {
      const bool first = comm_.rank() < peer;
      Stream stream(comm_, {peer, first ? up : down, first ? down : up, bytes, messages});
      comm_.Barrier();
      stream.Run();
      mine = stream.middle();
    } else {
      comm_.Barrier();
    }
    const auto all =
        comm_.GatherAll(fmt::format("{} {} {} {}", peer, mine.begin_ns, mine.end_ns, mine.bytes));
    // Ranks on one link are on one machine, whose clock is the same for all of them.
    std::map<std::pair<int, int>, Stream::Middle> directions;
    for (int r = 0; r < comm_.size(); ++r) {
      int from = -1;
      Stream::Middle each;
      std::istringstream(all[r]) >> from >> each.begin_ns >> each.end_ns >> each.bytes;
      if (each.bytes == 0) continue;
      const auto [at, is_new] = directions.try_emplace({level_.link(from), level_.link(r)}, each);
      if (is_new) continue;
      Stream::Middle& sum = at->second;
      sum.begin_ns = std::min(sum.begin_ns, each.begin_ns);
      sum.end_ns = std::max(sum.end_ns, each.end_ns);
      sum.bytes += each.bytes;
    }
    for (const auto& [direction, sum] : directions) {
      rates[direction].push_back(static_cast<double>(sum.bytes) /
                                 NsToS(std::max<int64_t>(sum.end_ns - sum.begin_ns, 1)));
    }
  }

  static double LevelRate(const Rates& rates) {
    std::vector<double> medians;
    for (const auto& [direction, samples] : rates) medians.push_back(Median(samples));
    return Median(std::move(medians));
  }

  void FindSlowest(const Rates& rates, LinkReport& report) const {
    for (const auto& [direction, samples] : rates) {
      const double rate = Median(samples);
      if (!report.slowest.empty() && rate >= report.slowest_bytes_per_s) continue;
      report.slowest_bytes_per_s = rate;
      report.slowest = fmt::format("from {} to {}", level_.link_name(direction.first),
                                   level_.link_name(direction.second));
    }
  }

  // A rank's rate, about, equal on all ranks: ever longer trials until the slowest rank's takes
  // long enough to tell it.
  double TrialRate() {
    const Pairs pairs = PairRounds(level_.members(), 1)[0];
    const int peer = level_.PeerIn(pairs, comm_.rank());
    size_t bytes = kLeastBytes;
    int messages = Stream::kLeastMessages;
    while (true) {
      double mine_s = 0;
      if (peer >= 0) {
        Stream stream(comm_, {peer, true, true, bytes, messages});
        comm_.Barrier();
        const int64_t start = NowNs();
        stream.Run();
        mine_s = NsToS(NowNs() - start);
      } else {
        comm_.Barrier();
      }
      double slowest_s = 1e-9;
      for (const std::string& text : comm_.GatherAll(fmt::format("{}", mine_s))) {
        slowest_s = std::max(slowest_s, ParseNumber(text, "seconds", 0, 1e9));
      }
      if (slowest_s >= kTrialS || messages > kMostTrialMessages) {
        return static_cast<double>(bytes) * messages / slowest_s;
      }
      if (bytes < kMostBytes) {
        bytes *= 4;
      } else {
        messages *= 4;
      }
    }
  }

  double LatencyMs() {
    const auto rounds = PairRounds(level_.members(), kMostRounds);
    std::vector<double> medians;
    for (const Pairs& pairs : rounds) {
      const int peer = level_.PeerIn(pairs, comm_.rank());
      comm_.Barrier();
      std::string mine = "-";
      // Whoever holds a core up only ever adds to a trip: the quick ones tell of the network.
      if (peer >= 0 && level_.pings(comm_.rank())) {
        const double budget_s = options_.latency_s / static_cast<double>(rounds.size());
        std::vector<double> trips = Ping(peer, comm_.rank() < peer, budget_s);
        std::sort(trips.begin(), trips.end());
        if (!trips.empty()) mine = fmt::format("{}", trips[trips.size() / 10] / 2);
      }
      for (const std::string& text : comm_.GatherAll(mine)) {
        if (text != "-") medians.push_back(ParseNumber(text, "milliseconds", 0, 1e9));
      }
    }
    return Median(std::move(medians));
  }

  // Small messages to and fro; the first byte of the leader's says whether it is the last. Returns
  // the leader's round trips in ms.
  std::vector<double> Ping(int peer, bool leads, double budget_s) {
    std::array<char, 64> message = {};
    std::vector<double> trips;
    const auto send = [&] {
      Ticket ticket;
      comm_.Send(peer, kTagBorder, message.data(), message.size(), ticket);
      comm_.Wait(ticket, {.action = "send a small message", .peer = peer});
    };
    const auto receive = [&] {
      Ticket ticket;
      comm_.Receive(peer, kTagBorder, message.data(), message.size(), ticket);
      comm_.Wait(ticket, {.action = "receive a small message", .peer = peer});
    };
    const int64_t start = NowNs();
    while (message[0] == 0) {
      const int done = static_cast<int>(trips.size());
      if (leads) {
        const bool last =
            done >= kMostPings || (done >= kLeastPings && NsToS(NowNs() - start) > budget_s);
        message[0] = last ? 1 : 0;
        const int64_t sent = NowNs();
        send();
        receive();
        trips.push_back(NsToMs(NowNs() - sent));
      } else {
        receive();
        send();
      }
    }
    return trips;
  }

  Comm& comm_;
  const Level& level_;
  const NetworkOptions& options_;
};

std::vector<RankPlace> GatherPlaces(Comm& comm, const RankPlace& mine) {
  std::vector<RankPlace> places;
  for (const std::string& text :
       comm.GatherAll(fmt::format("{}\n{}\n{}", mine.machine, mine.host, mine.memory_bytes))) {
    RankPlace place;
    std::istringstream lines(text);
    std::getline(lines, place.machine);
    std::getline(lines, place.host);
    lines >> place.memory_bytes;
    places.push_back(std::move(place));
  }
  return places;
}

std::string Rate(double bytes_per_s) { return FormatBytes(bytes_per_s) + "/s"; }

// On a host both directions share the memory, and a copy costs a message of any size its time.
void Warn(const LinkReport& link, bool inner, std::vector<std::string>& warnings) {
  const double both = link.both_ways_bytes_per_s;
  if (link.slowest_bytes_per_s < kUneven * both) {
    warnings.push_back(
        fmt::format("the link {} carries {}, the median one {}: a plan takes all "
                    "for equal",
                    link.slowest, Rate(link.slowest_bytes_per_s), Rate(both)));
  }
  if (inner) return;
  if (link.large_bytes_per_s < kHalf * both) {
    warnings.push_back(fmt::format(
        "{}: messages of 1 MiB move at {} each way, those of 60 KiB at {}: large borders "
        "will be slower than planned",
        link.name, Rate(link.large_bytes_per_s), Rate(both)));
  }
  if (both < kHalf * link.one_way_bytes_per_s) {
    warnings.push_back(
        fmt::format("{}: {} each way when both directions carry data, {} when one "
                    "does; plans count on the first",
                    link.name, Rate(both), Rate(link.one_way_bytes_per_s)));
  }
}

}  // namespace

NetworkReport MeasureNetwork(Comm& comm, const RankPlace& mine, const NetworkOptions& options) {
  NetworkReport report;
  report.layout = FindLayout(GatherPlaces(comm, mine));
  for (const bool inner : {true, false}) {
    const Level level(report.layout, inner);
    if (level.members() < 2) continue;
    const LinkReport link = Measurement(comm, level, options).Run();
    report.cluster.levels.push_back(
        {link.members, Rounded(link.both_ways_bytes_per_s), Rounded(link.latency_ms)});
    Warn(link, inner, report.warnings);
    report.links.push_back(link);
  }
  if (report.layout.memory_bytes < INT64_MAX) {
    report.cluster.memory_bytes = static_cast<int64_t>(
        Rounded(kMemoryShare * static_cast<double>(report.layout.memory_bytes)));
  }
  return report;
}

std::string FormatNetwork(const NetworkReport& report) {
  const int hosts = static_cast<int>(report.layout.hosts.size());
  const int ranks = report.layout.ranks_per_host;
  std::string out = fmt::format("{} host{}, {} rank{} each\n{:<14}{:>5}{:>13}{:>13}{:>13}{:>13}\n",
                                hosts, hosts == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s", "", "",
                                "both ways", "1 MiB each", "one way", "latency");
  for (const LinkReport& link : report.links) {
    out += fmt::format("{:<14}{:>5}{:>13}{:>13}{:>13}{:>10.3g} ms\n", link.name, link.members,
                       Rate(link.both_ways_bytes_per_s), Rate(link.large_bytes_per_s),
                       Rate(link.one_way_bytes_per_s), link.latency_ms);
  }
  return out;
}

}  // namespace pd
