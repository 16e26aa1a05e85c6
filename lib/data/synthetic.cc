// Classes are coarse patterns: each dimension is cut into up to four ranges, and a class has one
// level in each cell of that grid. Neighbouring pixels share a level, so a convolution and a
// pooling see the pattern as well as a dense layer does. All inputs of tokens of a sample read one
// chain, so that the tokens of one foretell the targets of another. Samples are computed when read:
// nothing is kept, however large the shape.
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
constexpr int64_t kMostTokens = 64;  // each occurs often enough to be learned
constexpr int64_t kMostClasses = 1 << 16;
// Of the chain: how likely each of the four steps is, summed up.
constexpr std::array<float, 3> kSteps = {0.75F, 0.92F, 0.98F};

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

// What all samples share.
struct World {
  explicit World(const DataRequest& request) : fields(request.fields), seed(request.seed) {
    for (const DataField& field : fields) {
      if (field.spec.dtype != DType::kI32) continue;
      PD_CHECK(field.limit >= 1, "input {} without a limit", field.name);
      if (field.spec.shape.empty()) {
        if (!field.target) continue;
        classes = std::min(field.limit, kMostClasses);
        has_label = true;
        continue;
      }
      tokens = std::min(tokens, field.limit);
      if (!field.target) reads_tokens = true;
    }
    if (!has_label) classes = tokens;
  }

  std::vector<DataField> fields;
  uint64_t seed;
  int64_t classes = 0;           // of the last scalar target; without one as many as tokens
  int64_t tokens = kMostTokens;  // that inputs and targets of tokens have
  bool reads_tokens = false;
  bool has_label = false;  // a scalar target
};

/// The f32 values of one input.
class Patterns {
 public:
  Patterns(const World& world, size_t field, std::string_view split)
      : cell_of_(CellsOf(world.fields[field].spec.shape, cells_)) {
    const auto key = [&](std::string_view what) {
      const uint64_t of_all = HashBytes(what, world.seed);
      return field == 0 ? of_all : HashBytes(fmt::format("{}", field), of_all);
    };
    noise_key_ = HashBytes(split, key("synthetic noise"));
    const uint64_t levels_key = key("synthetic levels");
    levels_.resize(static_cast<size_t>(world.classes * cells_));
    for (size_t i = 0; i < levels_.size(); ++i) {
      levels_[i] = kLevel * (2 * ToUniform(Philox(levels_key, 0, i)[0]) - 1);
    }
  }

  void Read(int64_t index, int64_t of_class, float* values) const {
    const float* levels = levels_.data() + of_class * cells_;
    const float scale = kNoise * 2.4494897F;  // √6
    for (size_t e = 0; e < cell_of_.size(); e += kNoiseWords) {
      const auto noise = Noise(noise_key_, static_cast<uint64_t>(index), e / kNoiseWords);
      const size_t count = std::min(kNoiseWords, cell_of_.size() - e);
      for (size_t i = 0; i < count; ++i) values[e + i] = levels[cell_of_[e + i]] + scale * noise[i];
    }
  }

 private:
  int64_t cells_ = 1;
  std::vector<uint16_t> cell_of_;
  uint64_t noise_key_ = 0;
  std::vector<float> levels_;  // [classes, cells]
};

/// The tokens of one sample after another.
class Chain {
 public:
  Chain(const World& world, std::string_view split)
      : tokens_(world.tokens),
        choice_key_(HashBytes(split, HashBytes("synthetic choices", world.seed))) {
    const auto bits = Philox(HashBytes("synthetic steps", world.seed), 0, 0);
    for (size_t j = 0; j < steps_.size(); ++j) steps_[j] = 1 + bits[j] % tokens_;
  }

  /// Tokens `first` to `first + count - 1` of the chain that starts with `token`.
  void Read(int64_t index, int64_t token, size_t first, size_t count, int32_t* out) const {
    for (size_t i = 0; i < first + count; ++i) {
      if (i >= first) out[i - first] = static_cast<int32_t>(token);
      const float u = ToUniform(Philox(choice_key_, static_cast<uint64_t>(index), i)[0]);
      size_t step = 0;
      while (step < kSteps.size() && u >= kSteps[step]) ++step;
      token = (token + steps_[step]) % tokens_;
    }
  }

 private:
  int64_t tokens_;
  uint64_t choice_key_;
  std::array<int64_t, kSteps.size() + 1> steps_ = {};
};

class SyntheticDataset : public Dataset {
 public:
  SyntheticDataset(const DataRequest& request, int64_t size, std::string_view split)
      : world_(request), size_(size), chain_(world_, split) {
    for (size_t f = 0; f < world_.fields.size(); ++f) {
      specs_.push_back(world_.fields[f].spec);
      patterns_.push_back(
          specs_[f].dtype == DType::kI32 ? nullptr : std::make_unique<Patterns>(world_, f, split));
    }
  }

  int64_t size() const override { return size_; }
  const std::vector<TensorSpec>& fields() const override { return specs_; }

  void Read(int64_t index, int field, uint64_t /*epoch*/, void* out) const override {
    const auto f = static_cast<size_t>(field);
    PD_CHECK(index >= 0 && index < size_ && f < specs_.size(), "sample {} of {}, field {}", index,
             size_, field);
    const int64_t of_class = index % world_.classes;
    if (patterns_[f] != nullptr) {
      patterns_[f]->Read(index, of_class, static_cast<float*>(out));
      return;
    }
    const DataField& what = world_.fields[f];
    auto* values = static_cast<int32_t*>(out);
    const auto count = static_cast<size_t>(Elements(what.spec.shape));
    if (what.spec.shape.empty()) {
      *values = static_cast<int32_t>(of_class % what.limit);
    } else if (world_.reads_tokens) {
      chain_.Read(index, of_class % world_.tokens, what.target ? 1 : 0, count, values);
    } else {
      for (size_t i = 0; i < count; ++i) {
        values[i] = static_cast<int32_t>((of_class + static_cast<int64_t>(i)) % world_.tokens);
      }
    }
  }

 private:
  World world_;
  int64_t size_;
  Chain chain_;
  std::vector<TensorSpec> specs_;
  std::vector<std::unique_ptr<Patterns>> patterns_;  // null for i32
};

}  // namespace

DataSource OpenSynthetic(const DataRequest& request) {
  DataSource source;
  source.train = std::make_unique<SyntheticDataset>(request, kTrainSize, "train");
  source.test = std::make_unique<SyntheticDataset>(request, kTestSize, "test");
  std::string inputs;
  for (const DataField& field : request.fields) {
    inputs += fmt::format("{}{} {} {}", inputs.empty() ? "" : ", ", field.name,
                          NameOf(field.spec.dtype), ToString(field.spec.shape));
  }
  const World world(request);
  source.description =
      fmt::format("synthetic: {} training and {} test samples of {}, {} {}", kTrainSize, kTestSize,
                  inputs, world.classes, world.has_label ? "classes" : "different tokens");
  return source;
}

}  // namespace pd
