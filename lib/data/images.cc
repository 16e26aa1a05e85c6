#include "data/images.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace pd {
namespace {

struct Normalisation {
  double mean = 0, deviation = 0;
  std::array<float, 256> value = {};  ///< Of each byte.
};

// Exact whatever the order: sums of integers over the 256 values a pixel can have.
Normalisation Measure(const std::vector<uint8_t>& pixels) {
  std::array<int64_t, 256> counts = {};
  for (const uint8_t pixel : pixels) ++counts[pixel];
  const auto total = static_cast<double>(pixels.size());
  Normalisation result;
  for (int v = 0; v < 256; ++v) result.mean += static_cast<double>(counts[v] * v) / 255 / total;
  for (int v = 0; v < 256; ++v) {
    const double distance = v / 255.0 - result.mean;
    result.deviation += static_cast<double>(counts[v]) * distance * distance / total;
  }
  result.deviation = std::sqrt(result.deviation);
  const double divisor = result.deviation > 0 ? result.deviation : 1;
  for (int v = 0; v < 256; ++v) {
    result.value[v] = static_cast<float>((v / 255.0 - result.mean) / divisor);
  }
  return result;
}

class ImageDataset : public Dataset {
 public:
  ImageDataset(ByteImages images, const Normalisation& normalisation, int64_t classes)
      : images_(std::move(images)),
        value_(normalisation.value),
        classes_(classes),
        pixels_each_(Elements(images_.shape)),
        fields_({{images_.shape, DType::kF32}, {{}, DType::kI32}}) {}

  int64_t size() const override { return static_cast<int64_t>(images_.labels.size()); }
  const std::vector<TensorSpec>& fields() const override { return fields_; }
  int64_t classes() const override { return classes_; }

  void Read(int64_t index, int field, uint64_t /*epoch*/, void* out) const override {
    PD_CHECK(index >= 0 && index < size() && (field == 0 || field == 1),
             "sample {} of {}, field {}", index, size(), field);
    if (field == 1) {
      const int32_t label = images_.labels[static_cast<size_t>(index)];
      std::memcpy(out, &label, sizeof label);
      return;
    }
    const uint8_t* pixels = images_.pixels.data() + index * pixels_each_;
    auto* values = static_cast<float*>(out);
    for (int64_t i = 0; i < pixels_each_; ++i) values[i] = value_[pixels[i]];
  }

 private:
  ByteImages images_;
  std::array<float, 256> value_;
  int64_t classes_, pixels_each_;
  std::vector<TensorSpec> fields_;
};

void CheckSplit(const ByteImages& split, const DataRequest& request) {
  PD_REQUIRE(split.shape == request.fields[0].shape,
             "{}: images do not fit the model's input: expected shape {}, found {}",
             split.images_file, ToString(request.fields[0].shape), ToString(split.shape));
  const size_t images = split.pixels.size() / static_cast<size_t>(Elements(split.shape));
  PD_REQUIRE(split.labels.size() == images,
             "{}: expected {} labels, one for each image of {}, found {}", split.labels_file,
             images, split.images_file, split.labels.size());
  for (size_t i = 0; i < split.labels.size(); ++i) {
    PD_REQUIRE(split.labels[i] < request.classes,
               "{}: sample {}: expected a label below {}, the model's number of classes, found {}",
               split.labels_file, i, request.classes, split.labels[i]);
  }
}

int LargestLabel(const ByteImages& split) {
  return split.labels.empty() ? -1 : *std::max_element(split.labels.begin(), split.labels.end());
}

}  // namespace

void CheckLabelledFields(const std::string& format, const DataRequest& request) {
  PD_REQUIRE(
      request.fields.size() == 2,
      "{} data holds an image (f32) and a label (i32): expected a model with 2 inputs, found {}",
      format, request.fields.size());
  const TensorSpec& data = request.fields[0];
  const TensorSpec& label = request.fields[1];
  PD_REQUIRE(data.dtype == DType::kF32, "{} data: the model's first input: expected f32, found {}",
             format, NameOf(data.dtype));
  PD_REQUIRE(label.dtype == DType::kI32 && label.shape.empty(),
             "{} data: the model's label: expected i32 of shape [], found {} of shape {}", format,
             NameOf(label.dtype), ToString(label.shape));
}

DataSource MakeImageSource(const std::string& format, ByteImages train, ByteImages test,
                           const DataRequest& request) {
  CheckLabelledFields(format, request);
  CheckSplit(train, request);
  CheckSplit(test, request);
  PD_REQUIRE(!train.labels.empty(), "{}: expected at least one training image, found none",
             train.images_file);
  const Normalisation normalisation = Measure(train.pixels);
  DataSource source;
  source.description = fmt::format(
      "{}: {} training and {} test images of {}, normalised by mean {:.4f}, deviation {:.4f} of "
      "the "
      "training pixels",
      format, train.labels.size(), test.labels.size(), ToString(train.shape), normalisation.mean,
      normalisation.deviation);
  const int64_t classes = 1 + std::max(LargestLabel(train), LargestLabel(test));
  source.train = std::make_unique<ImageDataset>(std::move(train), normalisation, classes);
  source.test = std::make_unique<ImageDataset>(std::move(test), normalisation, classes);
  return source;
}

}  // namespace pd
