// Against the published facts of Fashion-MNIST (https://github.com/zalandoresearch/fashion-mnist),
// where Debian's package dataset-fashion-mnist or PD_FASHION_MNIST has it.
#include <cstdlib>
#include <filesystem>
#include <map>

#include "files.h"
#include "support/catch.h"

namespace pd {
namespace {

std::string Place() {
  const char* place = std::getenv("PD_FASHION_MNIST");
  return place != nullptr ? place : "/usr/share/datasets/fashion-mnist";
}

std::map<int32_t, int> CountLabels(const Dataset& data) {
  std::map<int32_t, int> counts;
  for (int64_t i = 0; i < data.size(); ++i) {
    int32_t label = -1;
    data.Read(i, 1, 0, &label);
    ++counts[label];
  }
  return counts;
}

TEST_CASE("Fashion-MNIST has its published sizes, classes, mean and deviation") {
  if (!std::filesystem::exists(Place())) {
    WARN("skipped: no Fashion-MNIST at " << Place() << " (Debian: dataset-fashion-mnist)");
    return;
  }
  const DataSource source = Open(Place(), ImageFields({1, 28, 28}, 10));
  REQUIRE(source.train->size() == 60000);
  REQUIRE(source.test->size() == 10000);
  int32_t label = -1;
  source.train->Read(0, 1, 0, &label);
  CHECK(label == 9);
  for (int32_t c = 0; c < 10; ++c) {
    CHECK(CountLabels(*source.train)[c] == 6000);
    CHECK(CountLabels(*source.test)[c] == 1000);
  }

  // Black (-mean / deviation) and white ((1 - mean) / deviation) give both back.
  float low = 0, high = 0;
  std::vector<float> image(784);
  for (int64_t i = 0; i < 1000; ++i) {
    source.train->Read(i, 0, 0, image.data());
    for (const float value : image) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  const double deviation = 1.0 / (high - low);
  CHECK(deviation == Approx(0.3530).margin(1e-4));
  CHECK(-low * deviation == Approx(0.2860).margin(1e-4));
  CHECK_THAT(source.description, ContainsSubstring("mean 0.2860, deviation 0.3530"));
}

}  // namespace
}  // namespace pd
