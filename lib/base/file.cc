#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace pd {

void WriteAll(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Throw(ErrorCode::kIo, "{}: cannot write: {}", path, std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(written));
  }
}

namespace {

std::string TemporaryOf(const std::string& path) { return path + ".tmp"; }

// A device or a pipe, which is written in place.
bool IsSpecial(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

bool IsSameFile(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  if (a == b) return true;
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  const fs::path one = fs::weakly_canonical(fs::absolute(a, error), error);
  return !error && one == fs::weakly_canonical(fs::absolute(b, error), error) && !error;
}

// Whether `path` can be opened for writing: 0, or why not.
int TryToOpen(const std::string& path) {
  const int made = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (made >= 0) {
    ::close(made);
    ::unlink(path.c_str());
    return 0;
  }
  if (errno != EEXIST) return errno;
  const int there = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (there < 0) return errno;
  ::close(there);
  return 0;
}

}  // namespace

void RefuseOverwrite(const std::string& other, const std::string& output, std::string_view flag,
                     std::string_view what) {
  const bool files = !other.empty() && !output.empty() && other != "-" && output != "-";
  PD_REQUIRE(!files || IsSpecial(output) || !IsSameFile(other, output),
             "{}: expected another file than {} {}, found {}", flag, what, other, output);
}

void RequireWritable(const std::string& path, std::string_view flag, Output how) {
  if (path.empty() || path == "-") {
    const int mode = ::fcntl(STDOUT_FILENO, F_GETFL);
    PD_REQUIRE(mode >= 0 && (mode & O_ACCMODE) != O_RDONLY,
               "{}: cannot write to standard output: {}", flag,
               std::strerror(mode < 0 ? errno : EBADF));
    return;
  }
  std::error_code none;
  PD_REQUIRE(!std::filesystem::is_directory(path, none),
             "{}: {}: expected a file, found a directory", flag, path);
  int error = 0;
  if (IsSpecial(path)) {  // opening a pipe would wait for its reader
    error = ::access(path.c_str(), W_OK) == 0 ? 0 : errno;
  } else {
    error = TryToOpen(how == Output::kInPlace ? path : TemporaryOf(path));
  }
  PD_REQUIRE(error == 0, "{}: {}: cannot create: {}", flag, path, std::strerror(error));
}

void RequireRegularFile(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return;
  Throw(ErrorCode::kInvalidInput, "{}: expected a file, found {}", path,
        S_ISDIR(info.st_mode)    ? "a directory"
        : S_ISFIFO(info.st_mode) ? "a pipe"
        : S_ISSOCK(info.st_mode) ? "a socket"
                                 : "a device");
}

std::string ReadRegularFile(const std::string& path) {
  RequireRegularFile(path);
  return ReadFile(path);
}

std::string ReadFile(const std::string& path) {
  const bool standard_input = path == "-";
  const std::string shown = standard_input ? "standard input" : path;
  const int fd = standard_input ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  PD_REQUIRE(fd >= 0, "{}: cannot open: {}", shown, std::strerror(errno));
  struct stat info {};
  const bool directory = ::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
  std::string text;
  ssize_t got = 0;
  int error = 0;
  if (!directory) {
    char block[1 << 16];
    while ((got = ::read(fd, block, sizeof block)) > 0)
      text.append(block, static_cast<size_t>(got));
    error = errno;
  }
  if (!standard_input) ::close(fd);
  PD_REQUIRE(!directory, "{}: expected a file, found a directory", shown);
  PD_REQUIRE(got == 0, "{}: cannot read: {}", shown, std::strerror(error));
  return text;
}

void WriteFile(const std::string& path, std::string_view text) {
  if (path.empty() || path == "-") {
    WriteAll(STDOUT_FILENO, text, "standard output");
    return;
  }
  const bool special = IsSpecial(path);
  const std::string target = special ? path : TemporaryOf(path);
  const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) Throw(ErrorCode::kIo, "{}: cannot create: {}", path, std::strerror(errno));
  try {
    WriteAll(fd, text, path);
  } catch (const Error&) {
    ::close(fd);
    if (!special) ::unlink(target.c_str());
    throw;
  }
  if (::close(fd) != 0) Throw(ErrorCode::kIo, "{}: cannot write: {}", path, std::strerror(errno));
  if (!special && std::rename(target.c_str(), path.c_str()) != 0) {
    Throw(ErrorCode::kIo, "{}: cannot rename: {}", path, std::strerror(errno));
  }
}

uint64_t HashBytes(std::string_view text, uint64_t seed) {
  uint64_t hash = seed;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace pd
