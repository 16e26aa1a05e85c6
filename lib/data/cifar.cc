// A record is the label (CIFAR-100: the coarse one of 20, then the fine one of 100), then 1,024
// bytes each of red, green and blue, row by row. There is no header: the length is all that tells
// whether a file is whole, and it is published.
#include "data/cifar.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "data/bytes.h"

namespace pd {
namespace {

const Shape kShape = {3, 32, 32};
constexpr size_t kPixels = size_t{3} * 32 * 32;

struct Kind {
  std::string_view name;
  std::vector<std::string> train, test;
  size_t train_records, test_records;  ///< Of a file.
  size_t label_bytes;                  ///< The last one counts.
};

std::vector<Kind> Kinds() {
  return {{"CIFAR-10",
           {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
            "data_batch_5.bin"},
           {"test_batch.bin"},
           10000,
           10000,
           1},
          {"CIFAR-100", {"train.bin"}, {"test.bin"}, 50000, 10000, 2}};
}

bool HasAny(const std::vector<std::string>& entries, const Kind& kind) {
  const auto is_there = [&](const std::string& name) {
    return std::find(entries.begin(), entries.end(), name) != entries.end();
  };
  return std::any_of(kind.train.begin(), kind.train.end(), is_there) ||
         std::any_of(kind.test.begin(), kind.test.end(), is_there);
}

void CheckLength(const std::string& path, size_t records, size_t record_bytes) {
  std::error_code error;
  const uintmax_t found = std::filesystem::file_size(path, error);
  PD_REQUIRE(!error, "{}: expected a file of {} records: {}", path, records, error.message());
  PD_REQUIRE(found == records * record_bytes, "{}: expected {} bytes ({} records of {}), found {}",
             path, records * record_bytes, records, record_bytes, found);
}

ByteImages ReadSplit(const std::vector<std::string>& paths, size_t records, size_t label_bytes) {
  ByteImages split = {paths[0], paths[0], kShape, {}, {}};
  const size_t all = records * paths.size();
  split.pixels.resize(all * kPixels);
  split.labels.reserve(all);
  for (const std::string& path : paths) {
    ByteReader reader(path);
    for (size_t r = 0; r < records; ++r) {
      uint8_t labels[2] = {};
      size_t got = reader.Read(labels, label_bytes);
      got += reader.Read(split.pixels.data() + split.labels.size() * kPixels, kPixels);
      PD_REQUIRE(got == label_bytes + kPixels, "{}: the file changed while it was read", path);
      split.labels.push_back(labels[label_bytes - 1]);
    }
  }
  return split;
}

}  // namespace

bool LooksLikeCifar(const std::vector<std::string>& entries) {
  const std::vector<Kind> kinds = Kinds();
  return std::any_of(kinds.begin(), kinds.end(),
                     [&](const Kind& kind) { return HasAny(entries, kind); });
}

DataSource OpenCifar(const std::string& directory, const std::vector<std::string>& entries,
                     const DataRequest& request) {
  const std::vector<Kind> kinds = Kinds();
  const Kind& kind = HasAny(entries, kinds[0]) ? kinds[0] : kinds[1];
  PD_REQUIRE(&kind == &kinds[1] || !HasAny(entries, kinds[1]),
             "{}: expected the files of CIFAR-10 or of CIFAR-100, found both", directory);
  const std::string name(kind.name);
  ReadImageRequest(name, request);
  const auto paths_of = [&](const std::vector<std::string>& names, size_t records) {
    std::vector<std::string> paths;
    for (const std::string& file : names) {
      paths.push_back(fmt::format("{}{}{}", directory, directory.ends_with('/') ? "" : "/", file));
      CheckLength(paths.back(), records, kind.label_bytes + kPixels);
    }
    return paths;
  };
  // All are looked at before one is read: a missing file is said at once.
  const std::vector<std::string> train = paths_of(kind.train, kind.train_records);
  const std::vector<std::string> test = paths_of(kind.test, kind.test_records);
  return MakeImageSource(name, ReadSplit(train, kind.train_records, kind.label_bytes),
                         ReadSplit(test, kind.test_records, kind.label_bytes), request);
}

}  // namespace pd
