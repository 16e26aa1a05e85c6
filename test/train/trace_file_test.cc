#include "train/trace_file.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "pipeline/session.h"
#include "support/catch.h"
#include "support/error_of.h"
#include "train/scratch.h"

namespace pd {
namespace {

using Json = nlohmann::json;

std::string Slices(int64_t begin_ns, int64_t offset_ns, int count) {
  Trace compute(100), messages(100);
  for (int i = 0; i < count; ++i) {
    compute.Add({ActionKind::kForward, i, begin_ns + i * 1000, begin_ns + i * 1000 + 500});
    messages.Add(
        {ActionKind::kSendOutputs, i, begin_ns + i * 1000 + 500, begin_ns + i * 1000 + 800});
  }
  std::string bytes = TraceFile::Pack(compute, messages, offset_ns);
  PD_CHECK(compute.slices().empty() && messages.slices().empty(), "not emptied");
  return bytes;
}

TEST_CASE("a trace cut at any line loads once it is closed") {
  const Scratch folder;
  const std::string path = folder / "trace.json";
  TraceFile file(path, {"stage 0 replica 0", "a \"quoted\" role"});
  file.Append({Slices(1'000'000, 0, 3), ""}, "");
  file.Append({"", ""}, "");
  file.Append({Slices(9'000'000, 0, 2), Slices(9'000'000, 0, 4)}, "evaluation ");
  const std::string open = ReadFile(path);
  file.Close();
  const std::string whole = ReadFile(path);
  const Json all = Json::parse(whole);
  CHECK(all.size() == 2 * 3 + 2 * (3 + 2 + 4));
  CHECK(all[6]["name"].get<std::string>() + "|" + all.back()["name"].get<std::string>() ==
        fmt::format("{} 1|evaluation {} 4", NameOf(ActionKind::kForward),
                    NameOf(ActionKind::kSendOutputs)));
  size_t events = 0;
  for (size_t end = open.find('\n'); end != std::string::npos; end = open.find('\n', end + 1)) {
    std::string cut = open.substr(0, end);
    if (cut.back() == ',') cut.pop_back();
    INFO(cut);
    const Json loaded = Json::parse(cut + "]", nullptr, /*allow_exceptions=*/false);
    REQUIRE(loaded.is_array());
    CHECK(loaded.size() == events++);
  }
  CHECK(events == all.size());
}

TEST_CASE("all ranks' slices are on rank 0's clock, in microseconds") {
  const Scratch folder;
  const std::string path = folder / "trace.json";
  TraceFile file(path, {"stage 0 replica 0", "stage 1 replica 0"});
  // Rank 1's clock is 7 ms behind.
  file.Append({Slices(10'000'000, 0, 2), Slices(3'000'000, 7'000'000, 2)}, "");
  file.Close();
  std::vector<std::pair<double, double>> forwards[2];
  for (const Json& event : Json::parse(ReadFile(path))) {
    if (event["ph"] != "X" || event["tid"] != 0) continue;
    forwards[event["pid"].get<int>()].emplace_back(event["ts"], event["dur"]);
  }
  const std::vector<std::pair<double, double>> expected = {{10'000.0, 0.5}, {10'001.0, 0.5}};
  CHECK(forwards[0] == expected);
  CHECK(forwards[1] == expected);
}

TEST_CASE("clocks of threads of one machine agree") {
  OnThreads(3, [](Transport& transport) {
    Comm comm(transport, {.report_s = 20, .fail_s = 60});
    const int64_t offset = ClockOffsetNs(comm);
    PD_CHECK(comm.rank() > 0 || offset == 0, "rank 0 is {} ns off itself", offset);
    PD_CHECK(std::abs(offset) < 100'000'000, "{} ns", offset);
    comm.Barrier();
  });
}

TEST_CASE("a trace that cannot be created is refused, naming the file") {
  const Scratch folder;
  CHECK_THAT(ErrorOf([&] { TraceFile file(folder / "no/such/t", {}); }, ErrorCode::kIo),
             ContainsSubstring("no/such/t"));
}

}  // namespace
}  // namespace pd
