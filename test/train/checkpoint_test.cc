#include "train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "pipeline/pipelined.h"
#include "pipeline/session.h"
#include "support/catch.h"
#include "train/scratch.h"

namespace pd {
namespace {

using Json = nlohmann::json;

// A reader of safetensors of its own: 8 bytes of header length, the header, the tensors.
TrainingResult ReadSafetensors(const std::string& text) {
  uint64_t length = 0;
  REQUIRE(text.size() >= sizeof length);
  std::memcpy(&length, text.data(), sizeof length);
  REQUIRE(length % 8 == 0);  // data is aligned
  REQUIRE(sizeof length + length <= text.size());
  const Json header = Json::parse(text.substr(sizeof length, length));
  const std::string data = text.substr(sizeof length + length);
  TrainingResult tensors;
  std::vector<std::pair<size_t, size_t>> ranges;
  for (const auto& [name, tensor] : header.items()) {
    CHECK(tensor["dtype"] == "F32");
    const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    size_t count = 1;
    for (const size_t extent : tensor["shape"]) count *= extent;
    REQUIRE(end - begin == count * sizeof(float));
    REQUIRE(end <= data.size());
    ranges.emplace_back(begin, end);
    tensors[name].resize(count);
    std::memcpy(tensors[name].data(), data.data() + begin, end - begin);
  }
  // Without holes, as the format wants it.
  std::sort(ranges.begin(), ranges.end());
  size_t at = 0;
  for (const auto& [begin, end] : ranges) {
    CHECK(begin == at);
    at = end;
  }
  CHECK(at == data.size());
  return tensors;
}

std::string Crc32(const std::string& text) {
  uint32_t crc = ~0U;
  for (const char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320U & (0U - (crc & 1U)));
  }
  return fmt::format("{:08x}", ~crc);
}

Plan PlanOf(const PipelineSpec& spec) {
  Plan plan;
  for (const std::vector<int>& ranks : spec.ranks) {
    plan.stages.emplace_back();
    plan.stages.back().workers = ranks;
  }
  return plan;
}

// Trains the case, saving after each segment.
void TrainAndSave(const TrainingCase& c, const std::string& folder) {
  const RandomData data = OracleData();
  OnThreads(std::accumulate(c.replicas.begin(), c.replicas.end(), 0), [&](Transport& transport) {
    Session session(c, transport);
    CheckpointWriter writer(folder, PlanOf(session.spec()), session.comm(), &session.worker(),
                            c.momentum != 0);
    int64_t epoch = 0;
    for (const int64_t samples : c.segments) {
      session.Train(data, samples, [&] { writer.Poll(); });
      writer.Begin({.epoch = ++epoch,
                    .minibatches = 40 * epoch,
                    .train_time_s = 1.5,
                    .plan_digest = "0123456789abcdef",
                    .config = R"({"format": "pipedream.config/1"})"});
    }
    writer.Finish();
    session.comm().Barrier();
  });
}

TEST_CASE("a checkpoint holds all weights, statistics and momentum, and says what it is") {
  for (NamedCase named : OracleCases(TrainingBackends().front())) {
    if (named.name != "2-1" && named.name != "1-1-1" && named.name != "1") continue;
    for (const double momentum : {0.9, 0.0}) {
      INFO(named.name << ", momentum " << momentum);
      named.c.momentum = momentum;
      const Scratch folder;
      TrainAndSave(named.c, folder / "c");
      TrainingResult wanted = TrainOnThreads(named.c, OracleData());
      wanted.erase("loss");
      const std::string last = folder / "c/epoch-000002";
      const Json manifest = Json::parse(ReadFile(last + "/manifest.json"));
      CHECK(manifest["format"] == "pipedream.checkpoint/1");
      CHECK(manifest["epoch"] == 2);
      CHECK(manifest["minibatches"] == 80);
      CHECK(manifest["config"]["format"] == "pipedream.config/1");
      REQUIRE(manifest["files"].size() == named.c.replicas.size());
      TrainingResult got;
      for (const Json& file : manifest["files"]) {
        const std::string path = last + "/" + file["name"].get<std::string>();
        const std::string text = ReadFile(path);
        CHECK(file["bytes"] == text.size());
        CHECK(file["crc32"] == Crc32(text));
        for (auto& [name, values] : ReadSafetensors(text)) {
          CHECK(got.count(name) == 0);
          got[name] = std::move(values);
        }
        CHECK(std::filesystem::last_write_time(last + "/manifest.json") >=
              std::filesystem::last_write_time(path));
      }
      CHECK(Difference(got, wanted) == "");
      CHECK(std::filesystem::exists(folder / "c/epoch-000001/manifest.json"));
      size_t files = 0;  // nothing temporary is left
      for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(last)) ++files;
      CHECK(files == named.c.replicas.size() + 1);
    }
  }
}

TEST_CASE("a stage that cannot be written leaves that checkpoint without a manifest") {
  const Scratch folder;
  // A folder where the second stage's file should be.
  std::filesystem::create_directories(folder / "c/epoch-000001/stage-001.safetensors/x");
  NamedCase named = OracleCases("ref")[1];
  REQUIRE(named.name == "1-1");
  TrainAndSave(named.c, folder / "c");
  CHECK_FALSE(std::filesystem::exists(folder / "c/epoch-000001/manifest.json"));
  CHECK(std::filesystem::exists(folder / "c/epoch-000002/manifest.json"));
}

TEST_CASE("a directory that holds a checkpoint is refused, so that files of two runs never mix") {
  const Scratch folder;
  NamedCase named = OracleCases("ref")[0];
  TrainAndSave(named.c, folder / "c");
  CHECK_THROWS_WITH(TrainAndSave(named.c, folder / "c"),
                    ContainsSubstring("without checkpoints, found epoch-00000"));
}

TEST_CASE("the test's own CRC is the standard one") { CHECK(Crc32("123456789") == "cbf43926"); }

}  // namespace
}  // namespace pd
