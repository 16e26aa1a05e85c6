#include "stage/packer.h"

#include <algorithm>
#include <random>

#include "support/catch.h"

namespace pd {
namespace {

size_t LargestNeed(const std::vector<Lifetime>& pieces, int steps) {
  size_t largest = 0;
  for (int now = 0; now < steps; ++now) {
    size_t need = 0;
    for (const Lifetime& piece : pieces) {
      if (piece.begin <= now && now <= piece.end) need += Align(piece.bytes);
    }
    largest = std::max(largest, need);
  }
  return largest;
}

TEST_CASE("pieces that are alive together never overlap, and all lie in the block, aligned") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int steps = 1 + static_cast<int>(random() % 30);
    std::vector<Lifetime> pieces(random() % 40);
    for (Lifetime& piece : pieces) {
      piece.bytes = random() % 4 == 0 ? 1 + random() % 100 : 1 + random() % 20'000;
      piece.begin = static_cast<int>(random() % static_cast<unsigned>(steps));
      piece.end =
          piece.begin + static_cast<int>(random() % static_cast<unsigned>(steps - piece.begin));
    }
    const Packing packing = Pack(pieces);
    REQUIRE(packing.offsets.size() == pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      REQUIRE(packing.offsets[i] % 64 == 0);
      REQUIRE(packing.offsets[i] + pieces[i].bytes <= packing.bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool together = pieces[i].begin <= pieces[j].end && pieces[j].begin <= pieces[i].end;
        const bool apart = packing.offsets[i] + pieces[i].bytes <= packing.offsets[j] ||
                           packing.offsets[j] + pieces[j].bytes <= packing.offsets[i];
        REQUIRE((!together || apart));
      }
    }
    size_t all = 0;
    for (const Lifetime& piece : pieces) all += Align(piece.bytes);
    CHECK(packing.bytes >= LargestNeed(pieces, steps));
    CHECK(packing.bytes <= all);
    CHECK(Pack(pieces).offsets == packing.offsets);
  }
}

TEST_CASE("pieces that follow one another share their memory") {
  const Packing chain = Pack({{1000, 0, 1}, {1000, 1, 2}, {1000, 2, 3}, {1000, 3, 4}});
  CHECK(chain.bytes == 2 * Align(1000));
  CHECK(Pack({}).bytes == 0);
}

}  // namespace
}  // namespace pd
