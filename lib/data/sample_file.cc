#include "data/sample_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace pd {

SampleFile::SampleFile(const std::string& path) : path_(path) {
  RequireRegularFile(path);
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  PD_REQUIRE(fd_ >= 0, "{}: cannot open: {}", path, std::strerror(errno));
  struct stat info = {};
  if (::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode)) size_ = static_cast<size_t>(info.st_size);
}

SampleFile::~SampleFile() { ::close(fd_); }

void SampleFile::Read(size_t at, void* out, size_t count) const {
  for (size_t done = 0; done < count;) {
    const ssize_t got =
        ::pread(fd_, static_cast<char*>(out) + done, count - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) Throw(ErrorCode::kIo, "{}: cannot read: {}", path_, std::strerror(errno));
    if (got == 0) {
      Throw(ErrorCode::kIo, "{}: byte {}: expected {} more bytes, found the end of the file", path_,
            at + done, count - done);
    }
    done += static_cast<size_t>(got);
  }
}

}  // namespace pd
