#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pd {

/// The whole content of `path`; "-" reads standard input. Refuses directories and unreadable files
/// (kInvalidInput, naming path and reason).
std::string ReadFile(const std::string& path);

/// Refuses (kInvalidInput) an output that would overwrite an input: `output`, given by `flag`, is
/// the same file as `input`. Empty names and "-" are no files.
void RefuseOverwrite(const std::string& input, const std::string& output, std::string_view flag);

/// Writes all of `text` to the open file `fd`; `path` names it in a complaint. Throws kIo.
void WriteAll(int fd, std::string_view text, const std::string& path);

/// Writes `text` to `path` ("-" or "": standard output) so that a failure never leaves a
/// half-written file: to a temporary beside it, renamed at the end. Throws kIo.
void WriteFile(const std::string& path, std::string_view text);

/// 64-bit FNV-1a of `text`, continuing from `seed`; used for digests and to key random numbers.
uint64_t HashBytes(std::string_view text, uint64_t seed = 0xcbf29ce484222325ULL);

}  // namespace pd
