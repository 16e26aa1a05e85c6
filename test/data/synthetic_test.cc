#include <cmath>
#include <limits>

#include "files.h"
#include "support/catch.h"

namespace pd {
namespace {

std::vector<float> ReadData(const Dataset& data, int64_t index) {
  std::vector<float> values(static_cast<size_t>(Elements(data.fields()[0].shape)));
  data.Read(index, 0, 0, values.data());
  return values;
}

int32_t ReadLabel(const Dataset& data, int64_t index) {
  int32_t label = -1;
  data.Read(index, 1, 0, &label);
  return label;
}

// Share of test samples whose nearest class mean (of the training samples) is their class's.
double NearestMeanAccuracy(const DataSource& source, int64_t classes) {
  const auto elements = static_cast<size_t>(Elements(source.train->fields()[0].shape));
  std::vector<std::vector<double>> means(static_cast<size_t>(classes),
                                         std::vector<double>(elements));
  std::vector<double> counts(static_cast<size_t>(classes));
  for (int64_t i = 0; i < 2000; ++i) {
    const auto label = static_cast<size_t>(ReadLabel(*source.train, i));
    const std::vector<float> values = ReadData(*source.train, i);
    counts[label] += 1;
    for (size_t e = 0; e < elements; ++e) means[label][e] += values[e];
  }
  int right = 0;
  for (int64_t i = 0; i < source.test->size(); ++i) {
    const std::vector<float> values = ReadData(*source.test, i);
    double best = std::numeric_limits<double>::infinity();
    size_t nearest = 0;
    for (size_t c = 0; c < means.size(); ++c) {
      double distance = 0;
      for (size_t e = 0; e < elements; ++e) {
        distance += std::pow(values[e] - means[c][e] / counts[c], 2);
      }
      if (distance < best) {
        best = distance;
        nearest = c;
      }
    }
    if (static_cast<size_t>(ReadLabel(*source.test, i)) == nearest) ++right;
  }
  return right / static_cast<double>(source.test->size());
}

TEST_CASE("synthetic data is learnable for every shape of image") {
  for (const Shape& shape :
       {Shape{1, 28, 28}, Shape{3, 9, 7}, Shape{784}, Shape{16, 3}, Shape{2, 2, 3, 5}}) {
    CAPTURE(ToString(shape));
    const DataSource source = OpenData("synthetic", ImageFields(shape), 10, 7);
    CHECK(source.train->fields() == ImageFields(shape));
    CHECK(NearestMeanAccuracy(source, 10) >= 0.97);
  }
}

TEST_CASE("synthetic data has 6400 and 1000 samples in equal classes, mean 0 and deviation 1") {
  const DataSource source = OpenData("synthetic", ImageFields({3, 16, 16}), 10, 1);
  REQUIRE(source.train->size() == 6400);
  REQUIRE(source.test->size() == 1000);
  CHECK(source.train->classes() == 10);
  std::vector<int> counts(10);
  for (int64_t i = 0; i < 6400; ++i) ++counts.at(static_cast<size_t>(ReadLabel(*source.train, i)));
  CHECK(counts == std::vector<int>(10, 640));
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < 500; ++i) {
    for (const float value : ReadData(*source.train, i)) {
      sum += value;
      squares += static_cast<double>(value) * value;
    }
  }
  CHECK(sum / (500 * 768) == Approx(0).margin(0.15));
  CHECK(std::sqrt(squares / (500 * 768)) == Approx(1).margin(0.1));
}

double RmsDistance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (size_t e = 0; e < a.size(); ++e) squares += std::pow(a[e] - b[e], 2);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

TEST_CASE("synthetic data depends on the seed only, and no two samples are equal") {
  const auto fields = ImageFields({1, 8, 8});
  const DataSource a = OpenData("synthetic", fields, 3, 5);
  const DataSource b = OpenData("synthetic", fields, 3, 5);
  const DataSource other = OpenData("synthetic", fields, 3, 6);
  for (const int64_t i : {0, 1, 999}) {
    CHECK(ReadData(*a.train, i) == ReadData(*b.train, i));
    CHECK(ReadData(*a.test, i) == ReadData(*b.test, i));
    CHECK(ReadData(*a.train, i) != ReadData(*other.train, i));
    CHECK(ReadData(*a.train, i) != ReadData(*a.test, i));
    CHECK(ReadData(*a.train, i) != ReadData(*a.train, i + 3));
    CHECK(ReadLabel(*a.train, i) == ReadLabel(*a.train, i + 3));
  }
  // Two samples of a class differ by noise alone (0.5 · √2); another seed has other patterns.
  CHECK(RmsDistance(ReadData(*a.train, 0), ReadData(*a.test, 0)) < 0.9);
  CHECK(RmsDistance(ReadData(*a.train, 0), ReadData(*other.train, 0)) > 1.1);
}

TEST_CASE("synthetic data refuses inputs that it cannot make") {
  CHECK_THAT(Refusal("synthetic", {{{4}, DType::kI32}, {{}, DType::kI32}}, 10),
             ContainsSubstring("expected f32, found i32"));
  CHECK_THAT(Refusal("synthetic", ImageFields(Shape(8, 4)), 10), ContainsSubstring("7 dimensions"));
}

}  // namespace
}  // namespace pd
