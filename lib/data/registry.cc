#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "data/cifar.h"
#include "data/dataset.h"
#include "data/folder.h"
#include "data/idx.h"
#include "data/images.h"
#include "data/npy.h"
#include "data/synthetic.h"
#include "data/text.h"

namespace pd {
namespace {

/// What --data named.
struct Place {
  std::string path;
  std::vector<std::string> entries;  ///< Names in the directory, byte-wise sorted.
  std::string found;                 ///< In words, for complaints.
};

struct Format {
  std::string_view description;  ///< How to name it, for complaints.
  bool (*recognises)(const Place& place);
  DataSource (*open)(const Place& place, const DataRequest& request);
};

// The formats known; the first that recognises a place opens it. A new format: a pair of files like
// idx.{h,cc} and a line here.
const Format kFormats[] = {
    {"\"synthetic\" (the word, not a directory)",
     [](const Place& place) { return place.path == "synthetic"; },
     [](const Place&, const DataRequest& request) { return OpenSynthetic(request); }},
    {"a directory of IDX files (train-images-idx3-ubyte, train-labels-idx1-ubyte and the same with "
     "t10k, each also as .gz)",
     [](const Place& place) { return LooksLikeIdx(place.entries); },
     [](const Place& place, const DataRequest& request) {
       return OpenIdx(place.path, place.entries, request);
     }},
    {"one of CIFAR-10 (data_batch_1.bin to data_batch_5.bin, test_batch.bin) or CIFAR-100 "
     "(train.bin, test.bin)",
     [](const Place& place) { return LooksLikeCifar(place.entries); },
     [](const Place& place, const DataRequest& request) {
       return OpenCifar(place.path, place.entries, request);
     }},
    {"one of images in folders (train/CLASS/*.png, .jpg, .jpeg, and the same below test or val)",
     [](const Place& place) { return LooksLikeImageFolder(place.path, place.entries); },
     [](const Place& place, const DataRequest& request) {
       return OpenImageFolder(place.path, request);
     }},
    {"one of NumPy arrays (train-INPUT.npy and test-INPUT.npy for each of the model's inputs)",
     [](const Place& place) { return LooksLikeNpy(place.entries); },
     [](const Place& place, const DataRequest& request) { return OpenNpy(place.path, request); }},
    {"one of text (train.txt, and test.txt or valid.txt)",
     [](const Place& place) { return LooksLikeText(place.entries); },
     [](const Place& place, const DataRequest& request) {
       return OpenText(place.path, place.entries, request);
     }},
};

Place LookAt(const std::string& path) {
  namespace fs = std::filesystem;
  Place place = {path, {}, "nothing of that name"};
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    if (status.type() != fs::file_type::not_found) place.found = error.message();
    return place;
  }
  place.found = "a file";
  if (!fs::is_directory(status)) return place;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    place.entries.push_back(it->path().filename().string());
  }
  PD_REQUIRE(!error, "{}: cannot list the directory: {}", path, error.message());
  std::sort(place.entries.begin(), place.entries.end());

  constexpr size_t kShown = 5;
  place.found = place.entries.empty() ? "an empty directory" : "a directory with ";
  for (size_t i = 0; i < std::min(kShown, place.entries.size()); ++i) {
    place.found += (i == 0 ? "" : ", ") + place.entries[i];
  }
  if (place.entries.size() > kShown) {
    place.found += fmt::format(" and {} more", place.entries.size() - kShown);
  }
  return place;
}

}  // namespace

DataSource OpenData(const std::string& path, const std::vector<DataField>& fields,
                    const JsonView& options, uint64_t seed) {
  const DataRequest request = {fields, options, seed};
  const Place place = LookAt(path);
  for (const Format& format : kFormats) {
    if (format.recognises(place)) return format.open(place, request);
  }
  std::string known;
  for (const Format& format : kFormats) {
    known += (known.empty() ? "" : ", or ") + std::string(format.description);
  }
  Throw(ErrorCode::kInvalidInput, "{}: unknown data: expected {}; found {}", path, known,
        place.found);
}

}  // namespace pd
