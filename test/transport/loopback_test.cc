#include "transport/loopback/loopback.h"

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "suite.h"
#include "support/catch.h"

namespace pd {
namespace {

// Runs `work` as every worker of `hub`; returns what each threw ("" if nothing).
std::vector<std::string> RunWorkers(LoopbackHub& hub, int size,
                                    const std::function<void(Transport&)>& work) {
  std::vector<std::string> thrown(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Transport& transport = hub.transport(rank);
      try {
        work(transport);
      } catch (const std::exception& error) {
        thrown[rank] = error.what();
        try {
          transport.Abort(1);  // So that the others stop too.
        } catch (const std::exception&) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

}  // namespace

TEST_CASE("loopback: every claim of the suite holds for 1 to 4 workers and all eager limits") {
  SuiteOptions options;
  options.largest_bytes = size_t{4} << 20;
  for (const size_t eager_bytes : {size_t{0}, size_t{256}, LoopbackHub::kDefaultEagerBytes}) {
    for (int size = 1; size <= 4; ++size) {
      LoopbackHub hub(size, eager_bytes);
      for (const TransportCase& each : TransportSuite(options)) {
        INFO(each.claim << ", " << size << " workers, eager limit " << eager_bytes);
        REQUIRE(RunWorkers(hub, size, each.run) == std::vector<std::string>(size));
      }
    }
  }
}

TEST_CASE("loopback: messages of 64 MB, both neighbours first") {
  LoopbackHub hub(2);
  REQUIRE(RunWorkers(hub, 2, TransportSuite({})[1].run) == std::vector<std::string>(2));
}

TEST_CASE("loopback: a message at or above the eager limit completes when it is received") {
  LoopbackHub hub(2, 256);
  std::vector<std::byte> data(256), room(256);
  Transport::Completion done[2];
  hub.transport(0).StartSend(1, 0, data.data(), 255, nullptr);
  CHECK(hub.transport(0).Poll(done) == 1);
  hub.transport(0).StartSend(1, 0, data.data(), 256, nullptr);
  CHECK(hub.transport(0).Poll(done) == 0);
  hub.transport(1).StartReceive(0, 0, room.data(), 256, nullptr);
  CHECK(hub.transport(0).Poll(done) == 0);
  hub.transport(1).StartReceive(0, 0, room.data(), 256, nullptr);
  CHECK(hub.transport(0).Poll(done) == 1);
  CHECK(done[0].bytes == 256);

  LoopbackHub strict(2, 0);
  strict.transport(0).StartSend(1, 0, nullptr, 0, nullptr);
  CHECK(strict.transport(0).Poll(done) == 0);
  strict.transport(1).StartReceive(0, 0, nullptr, 0, nullptr);
  CHECK(strict.transport(0).Poll(done) == 1);
}

TEST_CASE("loopback: a message longer than its receive is refused at the receiver") {
  for (const size_t eager_bytes : {size_t{0}, size_t{4096}}) {
    for (const bool receive_first : {true, false}) {
      LoopbackHub hub(2, eager_bytes);
      std::vector<std::byte> data(11), room(10);
      if (receive_first) hub.transport(1).StartReceive(0, 4, room.data(), 10, nullptr);
      hub.transport(0).StartSend(1, 4, data.data(), 11, nullptr);
      if (!receive_first) hub.transport(1).StartReceive(0, 4, room.data(), 10, nullptr);
      Transport::Completion done[1];
      CHECK(hub.transport(0).Poll(done) == 1);
      try {
        hub.transport(1).Poll(done);
        FAIL("accepted");
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::kComm);
        CHECK(std::string(error.what()) ==
              "rank 1: message from rank 0 with tag 4: expected at most 10 bytes, found 11");
      }
    }
  }
}

TEST_CASE("loopback: an abort reaches every worker at its next call") {
  LoopbackHub hub(3);
  char byte = 0;
  Transport::Completion done[1];
  CHECK_THROWS_WITH(hub.transport(1).Abort(7), ContainsSubstring("rank 1"));
  const std::string text = "rank 1 ended the job with status 7";
  CHECK_THROWS_WITH(hub.transport(0).Poll(done), ContainsSubstring(text));
  CHECK_THROWS_WITH(hub.transport(2).StartSend(0, 0, &byte, 1, nullptr), ContainsSubstring(text));
  CHECK_THROWS_WITH(hub.transport(2).StartReceive(0, 0, &byte, 1, nullptr),
                    ContainsSubstring(text));
}

TEST_CASE("loopback: peers that do not exist and negative tags are refused") {
  LoopbackHub hub(2);
  char byte = 0;
  CHECK_THROWS_AS(hub.transport(0).StartSend(2, 0, &byte, 1, nullptr), Error);
  CHECK_THROWS_AS(hub.transport(0).StartSend(-1, 0, &byte, 1, nullptr), Error);
  CHECK_THROWS_AS(hub.transport(0).StartReceive(1, -1, &byte, 1, nullptr), Error);
  CHECK_THROWS_AS(hub.transport(2), Error);
  CHECK_THROWS_AS(LoopbackHub(0), Error);
}

}  // namespace pd
