#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

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
    const DataSource source = Open("synthetic", ImageFields(shape, 10), "{}", 7);
    CHECK(source.train->fields() == SpecsOf(ImageFields(shape, 10)));
    CHECK(NearestMeanAccuracy(source, 10) >= 0.97);
  }
}

TEST_CASE("synthetic data has 6400 and 1000 samples in equal classes, mean 0 and deviation 1") {
  const DataSource source = Open("synthetic", ImageFields({3, 16, 16}, 10));
  REQUIRE(source.train->size() == 6400);
  REQUIRE(source.test->size() == 1000);
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
  const auto fields = ImageFields({1, 8, 8}, 3);
  const DataSource a = Open("synthetic", fields, "{}", 5);
  const DataSource b = Open("synthetic", fields, "{}", 5);
  const DataSource other = Open("synthetic", fields, "{}", 6);
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

std::vector<int32_t> ReadTokens(const Dataset& data, int64_t index, int field) {
  std::vector<int32_t> values(
      static_cast<size_t>(Elements(data.fields()[static_cast<size_t>(field)].shape)));
  data.Read(index, field, 0, values.data());
  return values;
}

TEST_CASE("synthetic targets of tokens are the next tokens, three of four by one fixed step") {
  const DataSource source = Open("synthetic", {{"tokens", {{32}, DType::kI32}, 1000},
                                               {"targets", {{32}, DType::kI32}, 50, true}});
  std::vector<int> steps(50);
  std::set<int32_t> seen;
  for (int64_t i = 0; i < 200; ++i) {
    const std::vector<int32_t> tokens = ReadTokens(*source.train, i, 0),
                               targets = ReadTokens(*source.train, i, 1);
    for (size_t t = 0; t < 32; ++t) {
      REQUIRE(tokens[t] >= 0);
      REQUIRE(targets[t] < 50);
      if (t > 0) REQUIRE(tokens[t] == targets[t - 1]);
      ++steps[static_cast<size_t>((targets[t] - tokens[t] + 50) % 50)];
      seen.insert(tokens[t]);
    }
  }
  CHECK(seen.size() == 50);
  // 4800 ± 35 of 6400 by the binomial distribution, unless two of the steps are the same one.
  const int most = *std::max_element(steps.begin(), steps.end());
  CHECK(most > 4600);
  CHECK(most < 6300);
  CHECK(ReadTokens(*source.train, 3, 0) != ReadTokens(*source.train, 53, 0));
  CHECK(ReadTokens(*source.train, 3, 0) != ReadTokens(*source.test, 3, 0));
}

TEST_CASE("synthetic data fills any inputs, below their limits") {
  // Frames with words of their own, a second image, and two labels.
  const std::vector<DataField> fields = {
      {"frames", {{7, 12}, DType::kF32}},     {"words", {{5}, DType::kI32}, 30},
      {"image", {{3, 4, 4}, DType::kF32}},    {"targets", {{2, 4}, DType::kI32}, 20, true},
      {"coarse", {{}, DType::kI32}, 3, true}, {"fine", {{}, DType::kI32}, 12, true},
      {"who", {{}, DType::kI32}, 4}};
  const DataSource source = Open("synthetic", fields);
  CHECK(source.train->fields() == SpecsOf(fields));
  for (int64_t i = 0; i < 100; ++i) {
    for (size_t f = 0; f < fields.size(); ++f) {
      if (fields[f].limit == 0) continue;
      for (const int32_t value : ReadTokens(*source.test, i, static_cast<int>(f))) {
        REQUIRE(value >= 0);
        REQUIRE(value < fields[f].limit);
      }
    }
    CHECK(ReadTokens(*source.test, i, 5)[0] == i % 12);
    CHECK(ReadTokens(*source.test, i, 4)[0] == i % 12 % 3);
    // The chain is one: the targets are the words one later.
    CHECK(ReadTokens(*source.test, i, 1)[1] == ReadTokens(*source.test, i, 3)[0]);
  }
  std::vector<float> frames(84), image(48);
  source.train->Read(0, 0, 0, frames.data());
  source.train->Read(0, 2, 0, image.data());
  CHECK(!std::equal(image.begin(), image.end(), frames.begin()));
}

TEST_CASE("synthetic targets of a model that reads no tokens follow from the pattern") {
  const DataSource source =
      Open("synthetic", {{"x", {{6, 4}, DType::kF32}}, {"targets", {{6}, DType::kI32}, 9, true}});
  for (int64_t i = 0; i < 20; ++i) {
    const std::vector<int32_t> targets = ReadTokens(*source.train, i, 1);
    for (size_t t = 0; t < 6; ++t) {
      CHECK(targets[t] == static_cast<int32_t>((i + static_cast<int64_t>(t)) % 9));
    }
  }
}

TEST_CASE("synthetic data refuses shapes of more than seven dimensions") {
  CHECK_THAT(Refusal("synthetic", ImageFields(Shape(8, 4), 10)), ContainsSubstring("7 dimensions"));
}

TEST_CASE("synthetic data takes the options of other data, without effect") {
  const std::vector<DataField> fields = ImageFields({4}, 10);
  const DataSource plain = OpenData("synthetic", fields, JsonView::Parse("{}", "options.json"), 1);
  const DataSource source =
      OpenData("synthetic", fields, JsonView::Parse(R"({"tokens": "words"})", "options.json"), 1);
  std::vector<float> expected(4), found(4);
  plain.train->Read(3, 0, 0, expected.data());
  source.train->Read(3, 0, 0, found.data());
  CHECK(found == expected);
}

}  // namespace
}  // namespace pd
