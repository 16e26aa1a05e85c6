#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pd {

/// The bytes of a file in order, unpacked when the file is gzip, which its first two bytes tell,
/// not its name. Strict: damage, a cut tail and bytes after the end of the gzip data are refused
/// (kInvalidInput) with file and place; so is a file named .gz that is not gzip.
class ByteReader {
 public:
  explicit ByteReader(const std::string& path);
  ~ByteReader();
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  /// Reads up to `count` bytes; fewer only at the end of the file.
  size_t Read(uint8_t* out, size_t count);
  /// Reads up to `count` bytes. Memory grows with what the file holds, so that a lying count costs
  /// nothing.
  std::vector<uint8_t> ReadUpTo(unsigned __int128 count);
  /// Whether all is read; checks gzip's checksum.
  bool AtEnd();

  /// "file.gz (unpacked)": what the positions in this file count.
  const std::string& name() const { return name_; }

 private:
  struct Inflater;

  std::string path_, name_;
  std::string content_;  ///< The file as it is on disk.
  size_t at_ = 0;        ///< Of a plain file.
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace pd
