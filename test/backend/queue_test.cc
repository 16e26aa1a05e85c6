#include <algorithm>
#include <atomic>
#include <cstdint>

#include "backend/graph.h"
#include "support/catch.h"

// Queues, marks and staging memory. On host backends all is done at once, and the same code holds.

namespace pd::test {
namespace {

constexpr size_t kCount = 50021;
constexpr int kRounds = 5;

TEST_CASE("uploads, work and downloads of several rounds meet in the order that their marks say",
          "[queue]") {
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    const Layout layout = DenseLayout({static_cast<int64_t>(kCount)}, DType::kF32);
    const Buffer term = backend->Allocate(layout.bytes);
    const Buffer sum = backend->Allocate(layout.bytes);
    const Buffer from = backend->AllocateStaging(layout.bytes);
    const Buffer to = backend->AllocateStaging(layout.bytes);
    const auto uploaded = backend->MakeMark();
    const auto summed = backend->MakeMark();
    const auto downloaded = backend->MakeMark();
    float expected = 0;
    for (int round = 1; round <= kRounds; ++round) {
      backend->WaitOnHost(*uploaded, "test: staging is free");
      std::fill_n(reinterpret_cast<float*>(from.data()), kCount, static_cast<float>(round));
      backend->Wait(Queue::kUpload, *summed, "test: term is free");
      backend->Transfer(Queue::kUpload, term.data(), from.data(), layout.bytes);
      backend->Record(Queue::kUpload, *uploaded, "test: term is there");
      backend->Wait(Queue::kCompute, *uploaded, "test: term is there");
      backend->Wait(Queue::kCompute, *downloaded, "test: sum was read");
      if (backend->dtype() == DType::kF32) {
        backend->Accumulate(sum.data(), term.data(), kCount);
        expected += static_cast<float>(round);
      } else {
        backend->Copy(sum.data(), term.data(), layout.bytes);
        expected = static_cast<float>(round);
      }
      backend->Record(Queue::kCompute, *summed, "test: sum is there");
      backend->Wait(Queue::kDownload, *summed, "test: sum is there");
      backend->Transfer(Queue::kDownload, to.data(), sum.data(), layout.bytes);
      backend->Record(Queue::kDownload, *downloaded, "test: sum was read");
      backend->WaitOnHost(*downloaded, "test: sum was read");
      const auto* result = reinterpret_cast<const float*>(to.data());
      CHECK(std::count(result, result + kCount, expected) == static_cast<int64_t>(kCount));
    }
  }
}

TEST_CASE("staging memory comes zeroed and aligned to 64 bytes", "[queue]") {
  for (const std::string& kind : Kinds()) {
    const auto backend = MakeBackend(kind, 1);
    for (const size_t bytes : {size_t{1}, size_t{4097}, (size_t{5} << 20) + 3}) {
      const Buffer buffer = backend->AllocateStaging(bytes);
      REQUIRE(buffer.bytes() == bytes);
      CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
      CHECK(std::count(buffer.data(), buffer.data() + bytes, std::byte{0}) ==
            static_cast<int64_t>(bytes));
    }
    CHECK(backend->AllocateStaging(0).bytes() == 0);
  }
}

TEST_CASE(
    "a mark that was never recorded counts as reached, and times between marks are not "
    "negative",
    "[queue]") {
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    const auto never = backend->MakeMark();
    backend->WaitOnHost(*never, "test");
    for (const Queue queue : {Queue::kCompute, Queue::kUpload, Queue::kDownload}) {
      backend->Wait(queue, *never, "test");
      const auto begin = backend->MakeMark();
      const auto end = backend->MakeMark();
      backend->Record(queue, *begin, "test");
      backend->Record(queue, *end, "test");
      backend->WaitOnHost(*end, "test");
      CHECK(backend->ElapsedMs(*begin, *end) >= 0);
    }
  }
}

TEST_CASE("a notice comes once, after the queue's work before it", "[queue]") {
  for (const std::string& kind : Kinds()) {
    INFO(kind);
    const auto backend = MakeBackend(kind, 1);
    for (const Queue queue : {Queue::kCompute, Queue::kUpload, Queue::kDownload}) {
      std::atomic<int> notices{0};
      backend->Notify(
          queue, [](void* context) { ++*static_cast<std::atomic<int>*>(context); }, &notices);
      const auto mark = backend->MakeMark();
      backend->Record(queue, *mark, "test");
      backend->WaitOnHost(*mark, "test");
      CHECK(notices == 1);
    }
  }
}

}  // namespace
}  // namespace pd::test
