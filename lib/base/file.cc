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

void RefuseOverwrite(const std::string& input, const std::string& output, std::string_view flag) {
  std::error_code error;  // a file that is not there yet is no other
  const bool same = !input.empty() && !output.empty() && output != "-" &&
                    (input == output || std::filesystem::equivalent(input, output, error));
  PD_REQUIRE(!same, "{}: expected another file than the input {}, found {}", flag, input, output);
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
  struct stat info {};
  const bool special = ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  const std::string target =
      special ? path : path + ".tmp";  // a device or a pipe is written in place
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
