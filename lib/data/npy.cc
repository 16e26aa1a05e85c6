// An .npy file: the magic number, a version, the length of a header that is the text of a Python
// dictionary with the keys descr, fortran_order and shape, and the values. Nothing is believed
// before it agrees with the file's length. Samples are read where they lie: an array may be larger
// than memory, and the system keeps what is read again.
#include "data/npy.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/sample_file.h"

namespace pd {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeader = size_t{1} << 20;
constexpr size_t kChunk = 4096;  // bytes converted at once

struct Header {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

// Reads the literal of a dictionary that NumPy writes, and no other Python.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  Header Parse() {
    Header header;
    int seen = 0;
    Expect('{');
    while (!Try('}')) {
      const std::string key = String();
      Expect(':');
      if (key == "descr") {
        header.descr = String();
        seen |= 1;
      } else if (key == "fortran_order") {
        header.fortran_order = Bool();
        seen |= 2;
      } else if (key == "shape") {
        header.shape = Tuple();
        seen |= 4;
      } else {
        Fail("the keys descr, fortran_order and shape");
      }
      if (!Try(',') && Peek() != '}') Fail("a comma or the end of the header");
    }
    if (seen != 7) Fail("all of descr, fortran_order and shape");
    Peek();
    if (at_ != text_.size()) Fail("nothing after the header");
    return header;
  }

 private:
  char Peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Try(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!Try(c)) Fail(fmt::format("'{}'", c));
  }
  std::string String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') Fail("a text in quotes (one plain type, no record)");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) Fail("the end of a text");
    const std::string text(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return text;
  }
  bool Bool() {
    Peek();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    Fail("True or False");
  }
  Shape Tuple() {
    Shape shape;
    Expect('(');
    while (!Try(')')) {
      int64_t extent = 0;
      const size_t begin = (Peek(), at_);
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        if (extent > std::numeric_limits<int64_t>::max() / 10 - 1) Fail("an extent of 64 bits");
        extent = 10 * extent + (text_[at_] - '0');
      }
      if (at_ == begin) Fail("an extent");
      shape.push_back(extent);
      if (!Try(',') && Peek() != ')') Fail("a comma or the end of the shape");
    }
    return shape;
  }
  [[noreturn]] void Fail(const std::string& expected) {
    const std::string found =
        at_ >= text_.size() ? "the end of the header" : Printable(text_.substr(at_, 20));
    Throw(ErrorCode::kInvalidInput, "{}: header: expected {}, found {}", path_, expected, found);
  }

  const std::string& path_;
  std::string_view text_;
  size_t at_ = 0;
};

// Reads the header and says where the values begin.
Header ReadHeader(const SampleFile& file, size_t& values_at) {
  uint8_t start[12] = {};
  file.Read(0, start, std::min(file.size(), sizeof start));
  PD_REQUIRE(file.size() >= sizeof start && std::memcmp(start, kMagic.data(), kMagic.size()) == 0,
             "{}: byte 0: expected an .npy file (93 4e 55 4d 50 59), found {}", file.path(),
             file.size() < sizeof start ? fmt::format("a file of {} bytes", file.size())
                                        : std::string("something else"));
  const int version = start[6];
  PD_REQUIRE(version >= 1 && version <= 3, "{}: byte 6: expected version 1, 2 or 3, found {}",
             file.path(), version);
  const size_t length_bytes = version == 1 ? 2 : 4;
  size_t length = 0;
  for (size_t i = length_bytes; i-- > 0;) length = length << 8 | start[8 + i];
  values_at = 8 + length_bytes + length;
  PD_REQUIRE(values_at <= file.size() && length <= kMaxHeader,
             "{}: byte 8: a header of {} bytes does not fit: expected at most {}", file.path(),
             length, std::min(kMaxHeader, file.size() - 8 - length_bytes));
  std::string text(length, '\0');
  file.Read(8 + length_bytes, text.data(), length);
  return HeaderParser(file.path(), text).Parse();
}

template <typename From, typename To>
void Convert(const uint8_t* from, void* to, size_t count) {
  auto* out = static_cast<To*>(to);
  for (size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    out[i] = static_cast<To>(value);
  }
}
using Converter = void (*)(const uint8_t* from, void* to, size_t count);

struct Type {
  std::string_view descr;
  size_t bytes;
  Converter to_f32, to_i32;  ///< Null: does not suit such an input.
};
constexpr Type kTypes[] = {
    {"<f4", 4, Convert<float, float>, nullptr},
    {"<f8", 8, Convert<double, float>, nullptr},
    {"<i4", 4, nullptr, Convert<int32_t, int32_t>},
    {"<i8", 8, nullptr, Convert<int64_t, int32_t>},
    {"|u1", 1, Convert<uint8_t, float>, Convert<uint8_t, int32_t>},
};

class NpyArray {
 public:
  NpyArray(const std::string& path, const DataField& field);

  int64_t samples() const { return samples_; }
  const std::string& path() const { return path_; }
  /// Refuses integers outside the field's limit.
  void CheckValues(const DataField& field) const;
  void Read(int64_t sample, void* out) const;

 private:
  std::string path_;
  SampleFile file_;
  size_t values_at_ = 0;
  const Type* type_ = nullptr;
  Converter convert_ = nullptr;
  int64_t samples_ = 0, elements_ = 0;  ///< Elements of a sample.
};

NpyArray::NpyArray(const std::string& path, const DataField& field)
    : path_(path), file_(path_), elements_(Elements(field.spec.shape)) {
  const Header header = ReadHeader(file_, values_at_);
  PD_REQUIRE(!header.fortran_order, "{}: header: expected C order, found Fortran order", path);
  const bool to_float = field.spec.dtype == DType::kF32;
  for (const Type& type : kTypes) {
    if (header.descr == type.descr) type_ = &type;
  }
  if (type_ != nullptr) convert_ = to_float ? type_->to_f32 : type_->to_i32;
  PD_REQUIRE(convert_ != nullptr,
             "{}: header: the input \"{}\" ({}): expected the type {}, found {}", path, field.name,
             NameOf(field.spec.dtype), to_float ? "<f4, <f8 or |u1" : "<i4, <i8 or |u1",
             Printable(header.descr));
  const Shape wanted = field.spec.shape;
  PD_REQUIRE(
      header.shape.size() == wanted.size() + 1 &&
          std::equal(wanted.begin(), wanted.end(), header.shape.begin() + 1),
      "{}: header: the input \"{}\": expected samples of shape {}, found an array of shape {}",
      path, field.name, ToString(wanted), ToString(header.shape));
  samples_ = header.shape[0];
  const auto bytes =
      static_cast<unsigned __int128>(samples_) * static_cast<uint64_t>(elements_) * type_->bytes;
  PD_REQUIRE(bytes == file_.size() - values_at_,
             "{}: header: the shape {} of {} wants {} bytes after byte {}, found {}", path,
             ToString(header.shape), header.descr, bytes, values_at_, file_.size() - values_at_);
}

void NpyArray::Read(int64_t sample, void* out) const {
  uint8_t chunk[kChunk];
  const auto all = static_cast<size_t>(elements_);
  const size_t start = values_at_ + static_cast<size_t>(sample) * all * type_->bytes;
  for (size_t done = 0; done < all;) {
    const size_t count = std::min(all - done, kChunk / type_->bytes);
    file_.Read(start + done * type_->bytes, chunk, count * type_->bytes);
    convert_(chunk, static_cast<char*>(out) + 4 * done, count);  // f32 and i32 have 4 bytes
    done += count;
  }
}

void NpyArray::CheckValues(const DataField& field) const {
  if (field.spec.dtype != DType::kI32) return;
  const size_t all = static_cast<size_t>(samples_) * static_cast<size_t>(elements_);
  const int64_t end = field.limit > 0 ? field.limit : int64_t{1} << 31;
  const int64_t begin = field.limit > 0 ? 0 : -end;
  std::vector<uint8_t> chunk(size_t{1} << 20);
  for (size_t done = 0; done < all;) {
    const size_t count = std::min(all - done, chunk.size() / type_->bytes);
    file_.Read(values_at_ + done * type_->bytes, chunk.data(), count * type_->bytes);
    for (size_t i = 0; i < count; ++i) {
      int64_t value = chunk[i];
      int32_t narrow = 0;
      if (type_->bytes == 4) value = (std::memcpy(&narrow, &chunk[4 * i], 4), narrow);
      if (type_->bytes == 8) std::memcpy(&value, &chunk[8 * i], 8);
      if (value >= begin && value < end) continue;
      if (field.target && value == kIgnoredTarget) continue;
      Throw(ErrorCode::kInvalidInput,
            "{}: sample {}: expected values from {} to {}{} for the input \"{}\", found {}", path(),
            (done + i) / static_cast<size_t>(elements_), begin, end - 1,
            field.target ? fmt::format(" (or {}: not counted)", kIgnoredTarget) : "", field.name,
            value);
    }
    done += count;
  }
}

class NpyDataset : public Dataset {
 public:
  NpyDataset(const std::string& directory, std::string_view split, const DataRequest& request) {
    for (const DataField& field : request.fields) {
      PD_REQUIRE(field.name.find('/') == std::string::npos,
                 "npy data: expected names of inputs that a file can have, found \"{}\"",
                 field.name);
      const std::string path = fmt::format("{}{}{}-{}.npy", directory,
                                           directory.ends_with('/') ? "" : "/", split, field.name);
      arrays_.push_back(std::make_unique<NpyArray>(path, field));
      fields_.push_back(field.spec);
      PD_REQUIRE(arrays_.back()->samples() == size(), "{}: expected {} samples as in {}, found {}",
                 path, size(), arrays_[0]->path(), arrays_.back()->samples());
    }
    for (size_t f = 0; f < arrays_.size(); ++f) arrays_[f]->CheckValues(request.fields[f]);
  }

  int64_t size() const override { return arrays_[0]->samples(); }
  const std::vector<TensorSpec>& fields() const override { return fields_; }
  void Read(int64_t index, int field, uint64_t /*epoch*/, void* out) const override {
    PD_CHECK(index >= 0 && index < size(), "sample {} of {}", index, size());
    arrays_.at(static_cast<size_t>(field))->Read(index, out);
  }

 private:
  std::vector<std::unique_ptr<NpyArray>> arrays_;
  std::vector<TensorSpec> fields_;
};

}  // namespace

bool LooksLikeNpy(const std::vector<std::string>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const std::string& name) {
    return name.ends_with(".npy") && (name.starts_with("train-") || name.starts_with("test-"));
  });
}

DataSource OpenNpy(const std::string& directory, const DataRequest& request) {
  request.options.CheckKeys({}, "npy data");
  PD_REQUIRE(!request.fields.empty(), "npy data: expected a model with inputs, found none");
  DataSource source;
  source.train = std::make_unique<NpyDataset>(directory, "train", request);
  source.test = std::make_unique<NpyDataset>(directory, "test", request);
  source.description = fmt::format("npy: {} training and {} test samples of {}, as they are",
                                   source.train->size(), source.test->size(),
                                   Counted(static_cast<int64_t>(request.fields.size()), "array"));
  source.metadata = R"({"format": "npy"})";
  return source;
}

}  // namespace pd
