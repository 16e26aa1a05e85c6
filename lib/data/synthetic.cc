// Classes are coarse patterns: each dimension is cut into up to four ranges, and a class has one
// level in each cell of that grid. Neighbouring pixels share a level, so a convolution and a
// pooling see the pattern as well as a dense layer does. Samples are computed when read: nothing is
// kept, however large the shape.
#include "data/synthetic.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"

namespace pd {
namespace {

constexpr int64_t kTrainSize = 6400;
constexpr int64_t kTestSize = 1000;
constexpr int64_t kMaxRanges = 4;
constexpr float kLevel = 1.5F;  // levels are uniform in ±kLevel: deviation 0.87
constexpr float kNoise = 0.5F;  // the noise's deviation
constexpr size_t kNoiseWords = 8;

// Eight numbers from one Philox block: sums of two bytes, a triangular distribution in ±1 with
// deviation 1/√6.
std::array<float, kNoiseWords> Noise(uint64_t key, uint64_t sample, uint64_t block) {
  const auto bits = Philox(key, sample, block);
  std::array<float, kNoiseWords> noise;
  for (size_t i = 0; i < kNoiseWords; ++i) {
    const uint32_t half = bits[i / 2] >> (16 * (i % 2));
    const auto sum = static_cast<float>((half & 255) + (half >> 8 & 255));
    noise[i] = (sum - 255.0F) / 256.0F;
  }
  return noise;
}

// The cell of the coarse grid that each element lies in, and the number of cells.
std::vector<uint16_t> CellsOf(const Shape& shape, int64_t& cells) {
  std::vector<uint16_t> cell_of(static_cast<size_t>(Elements(shape)), 0);
  cells = 1;
  int64_t inner = static_cast<int64_t>(cell_of.size());
  for (const int64_t extent : shape) {
    inner /= extent;
    const int64_t ranges = std::min(extent, kMaxRanges);
    PD_REQUIRE(cells * ranges <= UINT16_MAX,
               "synthetic data: expected a shape of at most 7 dimensions, found {}",
               ToString(shape));
    for (size_t e = 0; e < cell_of.size(); ++e) {
      const int64_t at = static_cast<int64_t>(e) / inner % extent;
      cell_of[e] = static_cast<uint16_t>(cell_of[e] * ranges + at * ranges / extent);
    }
    cells *= ranges;
  }
  return cell_of;
}

class SyntheticDataset : public Dataset {
 public:
  SyntheticDataset(const DataRequest& request, int64_t size, std::string_view split)
      : fields_(request.fields),
        size_(size),
        classes_(request.classes),
        noise_key_(HashBytes(split, HashBytes("synthetic noise", request.seed))),
        cell_of_(CellsOf(request.fields[0].shape, cells_)) {
    const uint64_t key = HashBytes("synthetic levels", request.seed);
    levels_.resize(static_cast<size_t>(classes_ * cells_));
    for (size_t i = 0; i < levels_.size(); ++i) {
      levels_[i] = kLevel * (2 * ToUniform(Philox(key, 0, i)[0]) - 1);
    }
  }

  int64_t size() const override { return size_; }
  const std::vector<TensorSpec>& fields() const override { return fields_; }
  int64_t classes() const override { return classes_; }

  void Read(int64_t index, int field, uint64_t /*epoch*/, void* out) const override {
    PD_CHECK(index >= 0 && index < size_ && (field == 0 || field == 1), "sample {} of {}, field {}",
             index, size_, field);
    const auto label = static_cast<int32_t>(index % classes_);
    if (field == 1) {
      std::memcpy(out, &label, sizeof label);
      return;
    }
    const float* levels = levels_.data() + label * cells_;
    const float scale = kNoise * 2.4494897F;  // √6
    auto* values = static_cast<float*>(out);
    for (size_t e = 0; e < cell_of_.size(); e += kNoiseWords) {
      const auto noise = Noise(noise_key_, static_cast<uint64_t>(index), e / kNoiseWords);
      const size_t count = std::min(kNoiseWords, cell_of_.size() - e);
      for (size_t i = 0; i < count; ++i) values[e + i] = levels[cell_of_[e + i]] + scale * noise[i];
    }
  }

 private:
  std::vector<TensorSpec> fields_;
  int64_t size_, classes_;
  uint64_t noise_key_;
  int64_t cells_ = 1;
  std::vector<uint16_t> cell_of_;
  std::vector<float> levels_;  ///< [classes, cells]
};

}  // namespace

DataSource OpenSynthetic(const DataRequest& request) {
  CheckLabelledFields("synthetic", request);
  DataSource source;
  source.train = std::make_unique<SyntheticDataset>(request, kTrainSize, "train");
  source.test = std::make_unique<SyntheticDataset>(request, kTestSize, "test");
  source.description = fmt::format(
      "synthetic: {} training and {} test samples of {}, {} classes, mean 0, deviation 1 by design",
      kTrainSize, kTestSize, ToString(request.fields[0].shape), request.classes);
  return source;
}

}  // namespace pd
