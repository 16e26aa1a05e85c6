#include "base/file.h"

#include <unistd.h>

#include <filesystem>

#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

TEST_CASE("an error is one line, whatever a file is called") {
  CHECK(ErrorOf([] { ReadFile("/no such\nplace"); }).find("/no such\\nplace: ") == 0);
}

// An empty directory of this test's own, gone at the end.
class ScratchFolder {
 public:
  ScratchFolder()
      : path_(fs::temp_directory_path() / ("pd_file_test_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ~ScratchFolder() { fs::remove_all(path_); }
  std::string File(const char* name) const { return (path_ / name).string(); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST_CASE("What is written is read back, zeros and all, and nothing stays beside it") {
  const ScratchFolder folder;
  const std::string path = folder.File("a.json");
  const std::string text("one\0two\n", 8);
  WriteFile(path, "older and longer than the next");
  WriteFile(path, text);
  CHECK(ReadFile(path) == text);
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("A directory, a missing file and a bad target are refused by path") {
  const ScratchFolder folder;
  CHECK(ErrorOf([&] { ReadFile(folder.path().string()); }) ==
        folder.path().string() + ": expected a file, found a directory");
  CHECK(ErrorOf([&] { ReadFile(folder.File("none")); }) ==
        folder.File("none") + ": cannot open: No such file or directory");
  CHECK(ErrorOf([&] { WriteFile(folder.File("none/a"), "x"); }, ErrorCode::kIo) ==
        folder.File("none/a") + ": cannot create: No such file or directory");
}

TEST_CASE("HashBytes is FNV-1a with 64 bits, and continues") {
  // Test vectors of the algorithm's authors (Fowler, Noll, Vo).
  CHECK(HashBytes("") == 0xcbf29ce484222325ULL);
  CHECK(HashBytes("a") == 0xaf63dc4c8601ec8cULL);
  CHECK(HashBytes("foobar") == 0x85944171f73967e8ULL);
  CHECK(HashBytes("bar", HashBytes("foo")) == HashBytes("foobar"));
}

TEST_CASE("an output that would overwrite an input is refused, by whatever name") {
  CHECK_NOTHROW(RefuseOverwrite("-", "-", "-o"));
  CHECK_NOTHROW(RefuseOverwrite("", "", "-o"));
  CHECK_NOTHROW(RefuseOverwrite("/nowhere/a", "/nowhere/b", "-o"));
  CHECK_THROWS_WITH(RefuseOverwrite("a.json", "a.json", "-o"), ContainsSubstring("-o"));
  CHECK_THROWS_WITH(RefuseOverwrite("/etc/passwd", "/etc/../etc/passwd", "--metrics"),
                    ContainsSubstring("/etc/../etc/passwd"));
}

TEST_CASE("two names of one file that is not there yet are one file") {
  const ScratchFolder folder;
  CHECK(ErrorOf([&] {
          RefuseOverwrite(folder.File("new"), folder.File("./new"), "--picture", "-o's");
        }) == "--picture: expected another file than -o's " + folder.File("new") + ", found " +
                  folder.File("./new"));
  CHECK_NOTHROW(RefuseOverwrite(folder.File("new"), folder.File("newer"), "-o"));
  CHECK_NOTHROW(RefuseOverwrite("/dev/null", "/dev/null", "-o"));
}

TEST_CASE("an output that could not be written is refused, and trying leaves nothing behind") {
  const ScratchFolder folder;
  const std::string kept = folder.File("kept");
  WriteFile(kept, "kept");
  for (const Output how : {Output::kWhole, Output::kInPlace}) {
    CHECK_NOTHROW(RequireWritable(kept, "-o", how));
    CHECK_NOTHROW(RequireWritable(folder.File("new"), "-o", how));
    CHECK_NOTHROW(RequireWritable("/dev/null", "-o", how));
    CHECK(ErrorOf([&] { RequireWritable(folder.File("none/a"), "-o", how); }) ==
          "-o: " + folder.File("none/a") + ": cannot create: No such file or directory");
    CHECK(ErrorOf([&] { RequireWritable(folder.path().string(), "--trace", how); }) ==
          "--trace: " + folder.path().string() + ": expected a file, found a directory");
    CHECK_THAT(ErrorOf([&] { RequireWritable(kept + "/a", "-o", how); }),
               ContainsSubstring("Not a directory"));
  }
  CHECK(ReadFile(kept) == "kept");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

}  // namespace
}  // namespace pd
