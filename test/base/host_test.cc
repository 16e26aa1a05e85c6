#include "base/host.h"

#include <sys/mman.h>

#include <cstring>

#include "support/catch.h"

namespace pd {

TEST_CASE("the high-water mark of memory starts anew where it is reset") {
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = ResidentMemoryBytes();
  // Not from the heap, which may keep it.
  void* const block =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(block != MAP_FAILED);
  std::memset(block, 1, kBytes);
  munmap(block, kBytes);
  REQUIRE(PeakMemoryBytes() >= before + kBytes * 9 / 10);
  ResetPeakMemory();
  CHECK(PeakMemoryBytes() < before + kBytes / 2);
}

}  // namespace pd
