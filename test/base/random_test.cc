#include "base/random.h"

#include <array>

#include "support/catch.h"

namespace pd {
namespace {

std::array<uint32_t, 4> Words(const PhiloxBlock& block) {
  return {block[0], block[1], block[2], block[3]};
}

TEST_CASE("Philox gives the known answers of its authors") {
  // Random123, tests/kat_vectors, philox4x32 with 10 rounds.
  CHECK(Words(Philox(0, 0, 0)) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Words(Philox(~0ULL, ~0ULL, ~0ULL)) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Words(Philox(0x299f31d0a4093822ULL, 0x0370734413198a2eULL, 0x85a308d3243f6a88ULL)) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("Uniform numbers are at least 0 and below 1") {
  CHECK(ToUniform(0) == 0.0F);
  CHECK(ToUniform(0xffffffff) < 1.0F);
  CHECK(ToUniform(0x80000000) == 0.5F);
}

TEST_CASE("Dropout keeps the share 1 - p, other elements for another key or minibatch") {
  constexpr int kCount = 100'000;
  int kept = 0;
  int other_key = 0;
  int other_minibatch = 0;
  for (int i = 0; i < kCount; ++i) {
    const bool keeps = DropoutKeeps(1, 2, i, 0.3F);
    kept += keeps ? 1 : 0;
    other_key += keeps != DropoutKeeps(9, 2, i, 0.3F) ? 1 : 0;
    other_minibatch += keeps != DropoutKeeps(1, 3, i, 0.3F) ? 1 : 0;
    REQUIRE(DropoutKeeps(1, 2, i, 0));
  }
  // Five standard deviations: sqrt(0.7·0.3/100000) = 0.0014; independent masks differ at 2·0.7·0.3.
  CHECK(kept / double{kCount} == Approx(0.7).margin(0.0073));
  CHECK(other_key / double{kCount} == Approx(0.42).margin(0.008));
  CHECK(other_minibatch / double{kCount} == Approx(0.42).margin(0.008));
}

}  // namespace
}  // namespace pd
