#include "data/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "data/pool.h"

namespace pd {
namespace {

class ImageDataset : public Dataset {
 public:
  /// `augment`: this is the training split.
  ImageDataset(ByteImages images, const TensorSpec& input, const ImageTransform& transform,
               bool augment)
      : images_(std::move(images)),
        transform_(transform),
        augment_(augment),
        fields_({input, {{}, DType::kI32}}) {}

  int64_t size() const override { return static_cast<int64_t>(images_.labels.size()); }
  const std::vector<TensorSpec>& fields() const override { return fields_; }

  void Read(int64_t index, int field, uint64_t epoch, void* out) const override {
    PD_CHECK(index >= 0 && index < size() && (field == 0 || field == 1),
             "sample {} of {}, field {}", index, size(), field);
    if (field == 1) {
      const int32_t label = images_.labels[static_cast<size_t>(index)];
      std::memcpy(out, &label, sizeof label);
      return;
    }
    const Shape& shape = images_.shape;
    const uint8_t* bytes = images_.pixels.data() + index * Elements(shape);
    const Pixels pixels = PlanarPixels(bytes, shape[0], shape[1], shape[2]);
    const Pool<TransformScratch>::Loan scratch(scratch_);
    auto* values = static_cast<float*>(out);
    if (augment_) {
      transform_.Apply(pixels, epoch, static_cast<uint64_t>(index), *scratch, values);
    } else {
      transform_.Apply(pixels, *scratch, values);
    }
  }

 private:
  ByteImages images_;
  ImageTransform transform_;
  bool augment_;
  std::vector<TensorSpec> fields_;
  mutable Pool<TransformScratch> scratch_;
};

void CheckLabels(const ByteImages& split, const DataRequest& request) {
  const size_t images = split.pixels.size() / static_cast<size_t>(Elements(split.shape));
  PD_REQUIRE(split.labels.size() == images,
             "{}: expected {} labels, one for each image of {}, found {}", split.labels_file,
             images, split.images_file, split.labels.size());
  for (size_t i = 0; i < split.labels.size(); ++i) {
    PD_REQUIRE(split.labels[i] < request.fields[1].limit,
               "{}: sample {}: expected a label below {}, the model's number of classes, found {}",
               split.labels_file, i, request.fields[1].limit, split.labels[i]);
  }
}

Normalisation NormalisationOf(const ByteImages& train, const ImageOptions& options) {
  if (!options.mean.empty()) return {options.mean, options.deviation};
  const auto images = static_cast<int64_t>(train.labels.size());
  PixelStatistics statistics(train.shape[0]);
  for (int64_t i = 0; i < images; ++i) {
    statistics.Add(PlanarPixels(train.pixels.data() + i * Elements(train.shape), train.shape[0],
                                train.shape[1], train.shape[2]));
  }
  return statistics.Result();
}

}  // namespace

void CheckLabelledFields(const std::string& format, const DataRequest& request) {
  PD_REQUIRE(
      request.fields.size() == 2,
      "{} data holds an image (f32) and a label (i32): expected a model with 2 inputs, found {}",
      format, request.fields.size());
  const TensorSpec& data = request.fields[0].spec;
  const TensorSpec& label = request.fields[1].spec;
  PD_REQUIRE(data.dtype == DType::kF32, "{} data: the model's first input: expected f32, found {}",
             format, NameOf(data.dtype));
  PD_REQUIRE(label.dtype == DType::kI32 && label.shape.empty(),
             "{} data: the model's label: expected i32 of shape [], found {} of shape {}", format,
             NameOf(label.dtype), ToString(label.shape));
}

ImageOptions ReadImageRequest(const std::string& format, const DataRequest& request, bool files) {
  CheckLabelledFields(format, request);
  const Shape& shape = request.fields[0].spec.shape;
  PD_REQUIRE(shape.size() == 3,
             "{} data: the model's first input: expected shape [channels, height, width], found {}",
             format, ToString(shape));
  return ImageOptions::Read(request.options, shape[0], files);
}

void CheckFits(const std::string& file, const Shape& image, const DataRequest& request,
               const ImageOptions& options) {
  const Shape& wanted = request.fields[0].spec.shape;
  PD_REQUIRE(image[0] == wanted[0] && FitsAfter(options, image[1], image[2], wanted),
             "{}: does not fit the model's input: expected shape {}{}, found {}", file,
             ToString(wanted), options.crop ? " or larger" : "", ShapeAfter(options, image));
}

std::string DescribeImages(const ImageOptions& options, const Normalisation& normalisation,
                           const std::string& measured) {
  std::string text;
  if (options.resize_width > 0) {
    text += fmt::format("resized to {} x {}, ", options.resize_height, options.resize_width);
  } else if (options.resize_height > 0) {
    text += fmt::format("resized to {}, ", options.resize_height);
  }
  if (options.pad > 0) text += fmt::format("padded by {}, ", options.pad);
  if (options.crop) text += options.augment ? "cropped (training: at random), " : "cropped, ";
  if (options.flip && options.augment) text += "flipped at random in training, ";
  text += "normalised by " + normalisation.Describe();
  if (options.mean.empty()) text += " of " + measured;
  return text;
}

std::string ImageMetadata(const std::string& format, const ImageOptions& options,
                          const Normalisation& normalisation,
                          const std::vector<std::string>& classes) {
  nlohmann::ordered_json json = {{"format", format}};
  if (!classes.empty()) json["classes"] = classes;
  if (options.resize_width > 0) {
    json["resize"] = {options.resize_height, options.resize_width};
  } else if (options.resize_height > 0) {
    json["resize"] = options.resize_height;
  }
  if (options.pad > 0) json["pad"] = options.pad;
  if (options.crop) json["crop"] = true;
  json["mean"] = normalisation.mean;
  json["deviation"] = normalisation.deviation;
  return json.dump();
}

DataSource MakeImageSource(const std::string& format, ByteImages train, ByteImages test,
                           const DataRequest& request) {
  const ImageOptions options = ReadImageRequest(format, request);
  const TensorSpec& input = request.fields[0].spec;
  for (const ByteImages* split : {&train, &test}) {
    CheckFits(split->images_file, split->shape, request, options);
    CheckLabels(*split, request);
  }
  PD_REQUIRE(!train.labels.empty(), "{}: expected at least one training image, found none",
             train.images_file);
  const Normalisation normalisation = NormalisationOf(train, options);
  const ImageTransform transform(options, input.shape, normalisation, request.seed);
  DataSource source;
  source.description = fmt::format("{}: {} training and {} test images of {}, {}", format,
                                   train.labels.size(), test.labels.size(), ToString(train.shape),
                                   DescribeImages(options, normalisation, "the training pixels"));
  source.metadata = ImageMetadata(format, options, normalisation, {});
  source.decode_threads = static_cast<int>(std::max<int64_t>(1, options.decode_threads));
  source.train = std::make_unique<ImageDataset>(std::move(train), input, transform, true);
  source.test = std::make_unique<ImageDataset>(std::move(test), input, transform, false);
  return source;
}

}  // namespace pd
