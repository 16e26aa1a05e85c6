#pragma once

#include <cstddef>
#include <string>

namespace pd {

/// A file that is read here and there. Thread-safe.
class SampleFile {
 public:
  /// Throws kInvalidInput where it cannot be opened. The path stays as it is while the file is
  /// open.
  explicit SampleFile(const std::string& path);
  ~SampleFile();
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;

  const std::string& path() const { return path_; }
  size_t size() const { return size_; }
  /// Reads `count` bytes from `at` on; throws kIo where the file ends before.
  void Read(size_t at, void* out, size_t count) const;

 private:
  const std::string& path_;
  int fd_;
  size_t size_ = 0;
};

}  // namespace pd
