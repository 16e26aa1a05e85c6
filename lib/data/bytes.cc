// Files are read whole, as they are on disk, and gzip is unpacked from memory. zlib's own gzread
// would be shorter, but it passes over bytes after the gzip data in silence and takes a file that
// is not gzip as it is.
#include "data/bytes.h"

#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/file.h"

namespace pd {
namespace {

constexpr size_t kFirstChunk = size_t{1} << 20;
constexpr size_t kMaxStep = size_t{1} << 30;  // zlib counts in 32 bits
constexpr int kGzipOnly = 16 + MAX_WBITS;

bool HasGzipMagic(std::string_view content) { return content.substr(0, 2) == "\x1f\x8b"; }

}  // namespace

struct ByteReader::Inflater {
  Inflater(const std::string& file, std::string_view packed) : path(file), rest(packed) {
    const int status = inflateInit2(&stream, kGzipOnly);
    if (status != Z_OK) Throw(ErrorCode::kIo, "{}: zlib: {}", path, zError(status));
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  size_t Read(uint8_t* out, size_t count) {
    size_t done = 0;
    while (done < count && !finished) done += Step(out + done, std::min(count - done, kMaxStep));
    return done;
  }

  size_t Step(uint8_t* out, size_t count) {
    const size_t given = std::min(rest.size(), kMaxStep);
    stream.next_in = reinterpret_cast<const Bytef*>(rest.data());
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = out;
    stream.avail_out = static_cast<uInt>(count);
    const int status = inflate(&stream, Z_NO_FLUSH);
    const size_t used = given - stream.avail_in;
    rest.remove_prefix(used);
    place += used;
    PD_REQUIRE(status != Z_BUF_ERROR || !rest.empty(),
               "{}: byte {}: expected more gzip data, found the end of the file (truncated)", path,
               place);
    PD_REQUIRE(status == Z_OK || status == Z_STREAM_END, "{}: byte {}: damaged gzip data: {}", path,
               place, stream.msg != nullptr ? stream.msg : zError(status));
    if (status == Z_STREAM_END) NextMember();
    return count - stream.avail_out;
  }

  // gzip data may be several members, one after the other (gzip's own manual: cat a.gz b.gz).
  void NextMember() {
    finished = rest.empty();
    PD_REQUIRE(finished || HasGzipMagic(rest),
               "{}: byte {}: expected the end of the file after the gzip data, found {} more bytes",
               path, place, rest.size());
    if (!finished) inflateReset(&stream);
  }

  const std::string& path;
  std::string_view rest;
  size_t place = 0;
  bool finished = false;
  z_stream stream = {};
};

ByteReader::ByteReader(const std::string& path)
    : path_(path), name_(path), content_(ReadRegularFile(path)) {
  if (HasGzipMagic(content_)) {
    name_ += " (unpacked)";
    inflater_ = std::make_unique<Inflater>(path_, content_);
    return;
  }
  PD_REQUIRE(!path.ends_with(".gz"), "{}: byte 0: expected gzip data (1f 8b), found {}", path,
             content_.empty() ? "an empty file" : "something else");
}

ByteReader::~ByteReader() = default;

size_t ByteReader::Read(uint8_t* out, size_t count) {
  if (inflater_ != nullptr) return inflater_->Read(out, count);
  const size_t got = std::min(count, content_.size() - at_);
  std::memcpy(out, content_.data() + at_, got);
  at_ += got;
  return got;
}

std::vector<uint8_t> ByteReader::ReadUpTo(unsigned __int128 count) {
  std::vector<uint8_t> bytes;
  size_t filled = 0;
  while (filled < count) {
    const size_t aim = inflater_ == nullptr ? content_.size() : std::max(kFirstChunk, 2 * filled);
    bytes.resize(static_cast<size_t>(std::min<unsigned __int128>(count, aim)));
    const size_t wanted = bytes.size() - filled;
    const size_t got = Read(bytes.data() + filled, wanted);
    filled += got;
    if (got < wanted || wanted == 0) break;
  }
  bytes.resize(filled);
  return bytes;
}

bool ByteReader::AtEnd() {
  if (inflater_ == nullptr) return at_ == content_.size();
  uint8_t byte = 0;
  return Read(&byte, 1) == 0;
}

}  // namespace pd
