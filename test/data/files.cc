#include "files.h"

#include <zlib.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "support/catch.h"

namespace pd {

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "pd-data-XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Idx(const std::vector<uint32_t>& extents, const std::string& values) {
  std::string bytes = {0, 0, 8, static_cast<char>(extents.size())};
  for (const uint32_t extent : extents) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift & 255);
  }
  return bytes + values;
}

uint8_t SmallPixel(int64_t image, int64_t pixel) {
  return static_cast<uint8_t>(31 * image + 7 * pixel);
}
int SmallLabel(int64_t image) { return static_cast<int>(3 * image % 4); }

IdxBytes SmallIdx() {
  const auto images = [](uint32_t count) {
    std::string values;
    for (uint32_t i = 0; i < count; ++i) {
      for (int p = 0; p < 30; ++p) values += static_cast<char>(SmallPixel(i, p));
    }
    return Idx({count, 6, 5}, values);
  };
  const auto labels = [](uint32_t count) {
    std::string values;
    for (uint32_t i = 0; i < count; ++i) values += static_cast<char>(SmallLabel(i));
    return Idx({count}, values);
  };
  return {images(100), labels(100), images(20), labels(20)};
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

void WriteIdx(const TempDir& directory, const IdxBytes& bytes, const std::string& ending) {
  WriteFile(directory / ("train-images-idx3-ubyte" + ending), bytes.train_images);
  WriteFile(directory / ("train-labels-idx1-ubyte" + ending), bytes.train_labels);
  WriteFile(directory / ("t10k-images-idx3-ubyte" + ending), bytes.test_images);
  WriteFile(directory / ("t10k-labels-idx1-ubyte" + ending), bytes.test_labels);
}

std::vector<DataField> ImageFields(const Shape& shape, int64_t classes) {
  return {{"image", {shape, DType::kF32}}, {"label", {{}, DType::kI32}, classes, true}};
}

std::vector<TensorSpec> SpecsOf(const std::vector<DataField>& fields) {
  std::vector<TensorSpec> specs;
  for (const DataField& field : fields) specs.push_back(field.spec);
  return specs;
}

DataSource Open(const std::string& path, const std::vector<DataField>& fields,
                const std::string& options, uint64_t seed) {
  return OpenData(path, fields, JsonView::Parse(options, "options.json"), seed);
}

std::string Refusal(const std::string& path, const std::vector<DataField>& fields,
                    const std::string& options) {
  try {
    Open(path, fields, options);
  } catch (const Error& e) {
    std::string text = e.what();
    CHECK(e.code() == ErrorCode::kInvalidInput);
    CHECK(text.find('\n') == std::string::npos);
    return text;
  }
  return "accepted";
}

}  // namespace pd
