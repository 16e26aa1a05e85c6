// An IDX file: two zero bytes, the type of the values (08: unsigned byte), the number of
// dimensions, each extent as a big-endian 32-bit number, then the values. Nothing is believed
// before it agrees with the file's length.
#include "data/idx.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/bytes.h"

namespace pd {
namespace {

struct FileKind {
  std::string_view stem, ending;  ///< Joined by '-' or '.'.
  int dimensions;
};
constexpr FileKind kImages = {"images", "idx3-ubyte", 3};
constexpr FileKind kLabels = {"labels", "idx1-ubyte", 1};

struct IdxFile {
  std::vector<uint32_t> extents;
  std::vector<uint8_t> values;
};

// The names a file may have, the preferred first.
std::vector<std::string> Names(std::string_view split, const FileKind& kind) {
  std::vector<std::string> names;
  for (const char* packed : {"", ".gz"}) {
    for (const char* joint : {"-", "."}) {
      names.push_back(fmt::format("{}-{}{}{}{}", split, kind.stem, joint, kind.ending, packed));
    }
  }
  return names;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string FindIdxFile(const std::string& directory, const std::vector<std::string>& entries,
                        std::string_view split, const FileKind& kind) {
  const std::vector<std::string> names = Names(split, kind);
  for (const std::string& name : names) {
    if (!Contains(entries, name)) continue;
    return fmt::format("{}{}{}", directory, directory.ends_with('/') ? "" : "/", name);
  }
  Throw(ErrorCode::kInvalidInput, "{}: expected a file {} (or {}, either also as .gz), found none",
        directory, names[0], names[1]);
}

void CheckMagic(const ByteReader& reader, const uint8_t (&magic)[4], int dimensions) {
  const auto is = [&](int wanted) {
    return magic[0] == 0 && magic[1] == 0 && magic[2] == 8 && magic[3] == wanted;
  };
  const char* hint = "";
  if (is(kLabels.dimensions)) hint = " (a file of labels)";
  if (is(kImages.dimensions)) hint = " (a file of images)";
  PD_REQUIRE(is(dimensions),
             "{}: byte 0: expected the magic number 00 00 08 {:02x} (bytes in {} dimension{}), "
             "found {:02x} "
             "{:02x} {:02x} {:02x}{}",
             reader.name(), dimensions, dimensions, dimensions == 1 ? "" : "s", magic[0], magic[1],
             magic[2], magic[3], hint);
}

IdxFile ReadIdx(const std::string& path, const FileKind& kind) {
  ByteReader reader(path);
  uint8_t magic[4];
  size_t got = reader.Read(magic, sizeof magic);
  const size_t header = sizeof magic + 4 * static_cast<size_t>(kind.dimensions);
  if (got == sizeof magic) CheckMagic(reader, magic, kind.dimensions);

  IdxFile file;
  unsigned __int128 count = 1;  // three extents of 32 bits
  for (int d = 0; d < kind.dimensions; ++d) {
    uint8_t big_endian[4] = {};
    got += reader.Read(big_endian, sizeof big_endian);
    uint32_t extent = 0;
    for (const uint8_t byte : big_endian) extent = extent << 8 | byte;
    file.extents.push_back(extent);
    count *= extent;
  }
  PD_REQUIRE(got == header, "{}: expected a header of {} bytes, found a file of {} bytes",
             reader.name(), header, got);
  for (int d = 1; d < kind.dimensions; ++d) {
    PD_REQUIRE(file.extents[d] > 0,
               "{}: byte {}: expected images of at least one pixel, found an extent of 0",
               reader.name(), 4 + 4 * d);
  }
  file.values = reader.ReadUpTo(count);
  const bool at_end = reader.AtEnd();
  PD_REQUIRE(file.values.size() == count && at_end,
             "{}: byte 4: the header's extents {} want {} bytes of values after byte {}: found {}",
             reader.name(), ToString({file.extents.begin(), file.extents.end()}), count, header,
             at_end ? fmt::format("{}", file.values.size()) : "more");
  return file;
}

ByteImages ReadSplit(const std::string& images_path, const std::string& labels_path) {
  IdxFile images = ReadIdx(images_path, kImages);
  IdxFile labels = ReadIdx(labels_path, kLabels);
  return {images_path,
          labels_path,
          {1, images.extents[1], images.extents[2]},
          std::move(images.values),
          std::move(labels.values)};
}

}  // namespace

bool LooksLikeIdx(const std::vector<std::string>& entries) {
  for (const char* split : {"train", "t10k"}) {
    for (const FileKind& kind : {kImages, kLabels}) {
      for (const std::string& name : Names(split, kind)) {
        if (Contains(entries, name)) return true;
      }
    }
  }
  return false;
}

DataSource OpenIdx(const std::string& directory, const std::vector<std::string>& entries,
                   const DataRequest& request) {
  CheckLabelledFields("IDX", request);
  // All four are looked up before one is read: a missing file is said at once.
  const auto find = [&](std::string_view split, const FileKind& kind) {
    return FindIdxFile(directory, entries, split, kind);
  };
  const std::string train_images = find("train", kImages), train_labels = find("train", kLabels);
  const std::string test_images = find("t10k", kImages), test_labels = find("t10k", kLabels);
  return MakeImageSource("IDX", ReadSplit(train_images, train_labels),
                         ReadSplit(test_images, test_labels), request);
}

}  // namespace pd
