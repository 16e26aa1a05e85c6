#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pd {

/// The whole content of `path`; "-" reads standard input. Refuses directories and unreadable files
/// (kInvalidInput, naming path and reason).
std::string ReadFile(const std::string& path);

/// Refuses (kInvalidInput) a directory, pipe, socket or device, which data is never read from: a
/// pipe would wait for ever, a device need not end. Says nothing of a path that is not there.
void RequireRegularFile(const std::string& path);
std::string ReadRegularFile(const std::string& path);

/// Refuses (kInvalidInput) an output that would overwrite another file: `output`, given by `flag`,
/// is the same file as `other`, which is `what`, whether or not they are there yet. Empty names,
/// "-", devices and pipes are no files.
void RefuseOverwrite(const std::string& other, const std::string& output, std::string_view flag,
                     std::string_view what = "the input");

/// How an output is written: by WriteFile, or opened and written as it grows.
enum class Output { kWhole, kInPlace };

/// Refuses (kInvalidInput), before the work begins, an output that could not be written when it is
/// done: `path`, given by `flag` ("-" or "": standard output), is a directory, lies in none, or may
/// not be written. Leaves what is there as it is.
void RequireWritable(const std::string& path, std::string_view flag, Output how = Output::kWhole);

/// Writes all of `text` to the open file `fd`; `path` names it in a complaint. Throws kIo.
void WriteAll(int fd, std::string_view text, const std::string& path);

/// Writes `text` to `path` ("-" or "": standard output) so that a failure never leaves a
/// half-written file: to a temporary beside it, renamed at the end. Throws kIo.
void WriteFile(const std::string& path, std::string_view text);

/// 64-bit FNV-1a of `text`, continuing from `seed`; used for digests and to key random numbers.
uint64_t HashBytes(std::string_view text, uint64_t seed = 0xcbf29ce484222325ULL);

}  // namespace pd
