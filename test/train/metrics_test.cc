#include "train/metrics.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "pipeline/session.h"
#include "plan/documents.h"
#include "plan/json_schema.h"
#include "support/catch.h"
#include "support/error_of.h"
#include "train/scratch.h"

namespace pd {
namespace {

TEST_CASE("every line of metrics is strict JSON that fits the schema, beside NaN and infinity") {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const SchemaChecker schemas(PD_SOURCE_DIR "/configs/schemas");
  const Scratch folder;
  {
    MetricsWriter writer(folder / "m.jsonl");
    for (const double loss : {0.5, 1e-300, 1e300, 3.0, nan, infinity, -infinity}) {
      writer.Train(1, 10, loss, 1234.5678, 0.25);
      writer.Eval(1, 10, {.loss = loss, .accuracy = 0.5, .top5_accuracy = {}, .perplexity = {}},
                  9.5, 8);
    }
    writer.Eval(1, 10, {.loss = 1, .accuracy = nan, .top5_accuracy = 0.5, .perplexity = infinity},
                9.5, 8);
  }
  std::istringstream text(ReadFile(folder / "m.jsonl"));
  std::string line;
  int lines = 0;
  while (std::getline(text, line)) {
    INFO(line);
    ++lines;
    CHECK(schemas.Check("metrics", ParseText(line)) == "");
    CHECK(line.rfind("{\"event\":", 0) == 0);
  }
  CHECK(lines == 15);
}

TEST_CASE("numbers in metrics read back the same") {
  for (const double value : {0.1, 1.0 / 3, 1e-310, 123456789.123456789, -2.5, 0.0}) {
    CHECK(ParseText(JsonNumber(value)).Number(-1e300, 1e300) == value);
  }
}

TEST_CASE("metrics that cannot be created are refused, naming the file") {
  const Scratch folder;
  CHECK_THAT(ErrorOf([&] { MetricsWriter writer(folder / "no/such/m"); }, ErrorCode::kIo),
             ContainsSubstring("no/such/m"));
}

TEST_CASE("losses come in minibatch order, whichever replica is the first to tell") {
  constexpr int64_t kMinibatches = 23;
  std::vector<double> losses;
  OnThreads(4, [&](Transport& transport) {
    PipelineSpec spec;
    spec.ranks = {{0}, {3, 1, 2}};
    Comm comm(transport, {.report_s = 20, .fail_s = 60});
    if (comm.rank() == 0) {
      MetricsCollector collector(spec, comm, 1);
      for (int64_t segment = 1; segment <= 2; ++segment) {
        collector.Begin(segment, kMinibatches);
        while (const MinibatchMetrics* metrics = collector.Wait())
          losses.push_back(metrics->loss_sum);
        PD_CHECK(collector.Poll() == nullptr, "more than there are");
      }
      comm.Barrier();
      return;
    }
    const int64_t replica = comm.rank() == 3 ? 0 : comm.rank();
    std::vector<MinibatchMetrics> mine;
    mine.reserve(2 * kMinibatches);
    std::vector<Ticket> tickets(2 * kMinibatches);
    for (int64_t segment = 1; segment <= 2; ++segment) {
      for (int64_t b = replica; b < kMinibatches; b += 3) {
        mine.push_back({.sequence = SequenceOf(segment, b),
                        .samples = 4,
                        .loss_sum = static_cast<double>(100 * segment + b)});
        comm.Send(0, kTagMetrics, &mine.back(), sizeof mine.back(), tickets[mine.size() - 1]);
      }
    }
    for (size_t i = 0; i < mine.size(); ++i) comm.Wait(tickets[i], {.action = "report"});
    comm.Barrier();
  });
  REQUIRE(losses.size() == 2 * kMinibatches);
  for (int64_t i = 0; i < 2 * kMinibatches; ++i) {
    CHECK(losses[static_cast<size_t>(i)] ==
          static_cast<double>(100 * (1 + i / kMinibatches) + i % kMinibatches));
  }
}

}  // namespace
}  // namespace pd
