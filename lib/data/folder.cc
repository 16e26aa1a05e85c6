#include "data/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/host.h"
#include "base/log.h"
#include "base/text.h"
#include "data/image_file.h"
#include "data/pool.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDefaultThreads = 8;

/// The images of a split.
struct Listing {
  std::string directory;           ///< With a slash behind.
  std::vector<std::string> files;  ///< CLASS/NAME, in order of class, then name.
  std::vector<int32_t> labels;
  int64_t skipped = 0, alpha = 0;
  std::string first_skipped;  ///< What was said of it.
};

struct Entry {
  std::string name;
  bool is_directory;
  bool operator<(const Entry& other) const { return name < other.name; }
};

// What is not hidden, byte-wise sorted.
std::vector<Entry> List(const std::string& directory) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.front() == '.') continue;
    std::error_code ignored;  // a broken link is no directory
    const bool is_directory = it->is_directory(ignored);
    entries.push_back({std::move(name), is_directory});
  }
  PD_REQUIRE(!error, "{}: cannot list the directory: {}", directory, error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool IsImageName(const std::string& name) {
  std::string ending = name.substr(std::min(name.size(), name.rfind('.')));
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

// The names of the folders in a split.
std::vector<std::string> ClassesOf(const std::string& directory) {
  std::vector<std::string> classes;
  for (const Entry& entry : List(directory)) {
    if (entry.is_directory) {
      PD_REQUIRE(Printable(entry.name) == entry.name,
                 "{}{}: expected a class name of printable UTF-8 characters", directory,
                 Printable(entry.name));
      classes.push_back(entry.name);
    } else {
      PD_REQUIRE(!IsImageName(entry.name), "{}{}: expected images in a folder of their class only",
                 directory, entry.name);
    }
  }
  return classes;
}

// Adds the images of one class.
void AddClass(const std::string& name, int32_t label, Listing& listing) {
  const std::string directory = listing.directory + name + "/";
  bool any = false;
  for (const Entry& entry : List(directory)) {
    PD_REQUIRE(!entry.is_directory, "{}{}: expected only image files in a class, found a directory",
               directory, entry.name);
    if (!IsImageName(entry.name)) continue;
    any = true;
    listing.files.push_back(fmt::format("{}/{}", name, entry.name));
    listing.labels.push_back(label);
  }
  PD_REQUIRE(any, "{}: expected images of the class (.png, .jpg, .jpeg), found none", directory);
}

Listing ListSplit(const std::string& directory, const std::vector<std::string>& classes) {
  Listing listing;
  listing.directory = directory;
  for (const std::string& name : ClassesOf(directory)) {
    const auto at = std::lower_bound(classes.begin(), classes.end(), name);
    PD_REQUIRE(at != classes.end() && *at == name,
               "{}{}: expected a class that the training split has, found another", directory,
               name);
    AddClass(name, static_cast<int32_t>(at - classes.begin()), listing);
  }
  return listing;
}

// Looks at the header of every file, and leaves the bad ones out where that is asked for.
void InspectAll(Listing& listing, const DataRequest& request, const ImageOptions& options) {
  ImageFileReader reader;
  size_t kept = 0;
  for (size_t i = 0; i < listing.files.size(); ++i) {
    const std::string path = listing.directory + listing.files[i];
    ImageInfo info;
    try {
      info = reader.Inspect(path);
    } catch (const Error& error) {
      if (!options.skip_bad || error.code() != ErrorCode::kInvalidInput) throw;
      if (listing.skipped++ == 0) listing.first_skipped = error.what();
      continue;
    }
    CheckFits(path, {request.fields[0].spec.shape[0], info.height, info.width}, request, options);
    listing.alpha += info.alpha ? 1 : 0;
    if (kept < i) {
      listing.files[kept] = std::move(listing.files[i]);
      listing.labels[kept] = listing.labels[i];
    }
    ++kept;
  }
  listing.files.resize(kept);
  listing.labels.resize(kept);
  if (listing.skipped > 0) {
    Warn("{}: left out {}, the first: {}", listing.directory, Counted(listing.skipped, "bad image"),
         listing.first_skipped);
  }
}

class FolderDataset : public Dataset {
 public:
  /// `augment`: this is the training split.
  FolderDataset(Listing listing, const TensorSpec& input, const ImageTransform& transform,
                bool augment)
      : listing_(std::move(listing)),
        transform_(transform),
        augment_(augment),
        fields_({input, {{}, DType::kI32}}) {}

  int64_t size() const override { return static_cast<int64_t>(listing_.files.size()); }
  const std::vector<TensorSpec>& fields() const override { return fields_; }

  void Read(int64_t index, int field, uint64_t epoch, void* out) const override {
    PD_CHECK(index >= 0 && index < size() && (field == 0 || field == 1),
             "sample {} of {}, field {}", index, size(), field);
    if (field == 1) {
      std::memcpy(out, &listing_.labels[static_cast<size_t>(index)], sizeof(int32_t));
      return;
    }
    const Pool<Tools>::Loan tools(tools_);
    tools->path = listing_.directory;
    tools->path += listing_.files[static_cast<size_t>(index)];
    const Pixels pixels = tools->reader.Decode(tools->path, fields_[0].shape[0]);
    PD_REQUIRE(transform_.Fits(pixels), "{}: the image changed since the run began", tools->path);
    auto* values = static_cast<float*>(out);
    if (augment_) {
      transform_.Apply(pixels, epoch, static_cast<uint64_t>(index), tools->scratch, values);
    } else {
      transform_.Apply(pixels, tools->scratch, values);
    }
  }

 private:
  /// Of one reading thread.
  struct Tools {
    ImageFileReader reader;
    TransformScratch scratch;
    std::string path;
  };

  Listing listing_;
  ImageTransform transform_;
  bool augment_;
  std::vector<TensorSpec> fields_;
  mutable Pool<Tools> tools_;
};

Normalisation NormalisationOf(const Listing& train, int64_t channels, const ImageOptions& options,
                              uint64_t seed) {
  if (!options.mean.empty()) return {options.mean, options.deviation};
  const auto images = static_cast<int64_t>(train.files.size());
  std::vector<int64_t> chosen = EpochOrder(HashBytes("measured images", seed), 0, images);
  chosen.resize(static_cast<size_t>(std::min(images, kMeasuredImages)));
  ImageFileReader reader;
  PixelStatistics statistics(channels);
  for (const int64_t i : chosen) {
    statistics.Add(reader.Decode(train.directory + train.files[static_cast<size_t>(i)], channels));
  }
  return statistics.Result();
}

std::string FindTestSplit(const std::string& base) {
  for (const char* name : {"test", "val"}) {
    std::error_code ignored;
    if (fs::is_directory(base + name, ignored)) return name;
  }
  Throw(ErrorCode::kInvalidInput, "{}: expected a directory test or val beside train, found none",
        base);
}

std::string Describe(const Listing& train, const Listing& test, const std::string& test_name,
                     size_t classes) {
  std::string text = fmt::format("image folder: {} training and {} test images (of {}) in {}",
                                 train.files.size(), test.files.size(), test_name,
                                 Counted(static_cast<int64_t>(classes), "class", "classes"));
  const int64_t skipped = train.skipped + test.skipped, alpha = train.alpha + test.alpha;
  if (skipped > 0) text += fmt::format(", {} left out", Counted(skipped, "bad one"));
  if (alpha > 0) text += fmt::format(", the alpha channels of {} dropped", alpha);
  return text;
}

}  // namespace

bool LooksLikeImageFolder(const std::string& directory, const std::vector<std::string>& entries) {
  std::error_code ignored;
  return std::find(entries.begin(), entries.end(), "train") != entries.end() &&
         fs::is_directory(directory + "/train", ignored);
}

DataSource OpenImageFolder(const std::string& directory, const DataRequest& request) {
  const ImageOptions options = ReadImageRequest("image folder", request, true);
  const TensorSpec& input = request.fields[0].spec;
  const int64_t channels = input.shape[0];
  PD_REQUIRE(channels == 1 || channels == 3,
             "image folder data: the model's first input: expected 1 channel (grey) or 3 (RGB), "
             "found {}",
             channels);
  const std::string base = directory.ends_with('/') ? directory : directory + "/";
  const std::string test_name = FindTestSplit(base);
  const std::vector<std::string> classes = ClassesOf(base + "train/");
  PD_REQUIRE(static_cast<int64_t>(classes.size()) <= request.fields[1].limit,
             "{}train: expected at most {}, the model's number, found {}", base,
             Counted(request.fields[1].limit, "class", "classes"), classes.size());
  Listing train = ListSplit(base + "train/", classes);
  Listing test = ListSplit(base + test_name + "/", classes);
  InspectAll(train, request, options);
  InspectAll(test, request, options);
  PD_REQUIRE(!train.files.empty(), "{}train: expected at least one training image, found none",
             base);
  for (size_t c = 0; c < classes.size(); ++c) {
    const bool any = std::find(train.labels.begin(), train.labels.end(), static_cast<int32_t>(c)) !=
                     train.labels.end();
    PD_REQUIRE(any, "{}train/{}: expected at least one good image, found none", base, classes[c]);
  }

  const Normalisation normalisation = NormalisationOf(train, channels, options, request.seed);
  const ImageTransform transform(options, input.shape, normalisation, request.seed);
  DataSource source;
  const auto measured = std::min(static_cast<int64_t>(train.files.size()), kMeasuredImages);
  source.description =
      fmt::format("{}, {}", Describe(train, test, test_name, classes.size()),
                  DescribeImages(options, normalisation, Counted(measured, "training image")));
  source.metadata = ImageMetadata("image folder", options, normalisation, classes);
  source.decode_threads = static_cast<int>(options.decode_threads);
  // One core is the training thread's own.
  if (source.decode_threads == 0) {
    source.decode_threads = std::clamp(UsableCores() - 1, 1, kMaxDefaultThreads);
  }
  source.train = std::make_unique<FolderDataset>(std::move(train), input, transform, true);
  source.test = std::make_unique<FolderDataset>(std::move(test), input, transform, false);
  return source;
}

}  // namespace pd
