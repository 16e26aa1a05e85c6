#include <filesystem>

#include "base/file.h"
#include "files.h"
#include "support/catch.h"

namespace pd {
namespace {

const std::vector<DataField> kFields = ImageFields({1, 28, 28}, 10);

void CheckNamesFormats(const std::string& text) {
  CHECK_THAT(text, ContainsSubstring("\"synthetic\""));
  CHECK_THAT(text, ContainsSubstring("train-images-idx3-ubyte"));
  CHECK_THAT(text, ContainsSubstring("data_batch_1.bin"));
  CHECK_THAT(text, ContainsSubstring("train/CLASS/*.png"));
  CHECK_THAT(text, ContainsSubstring("train-INPUT.npy"));
}

TEST_CASE("unknown data is refused with the formats known and what was found") {
  const TempDir directory;
  SECTION("nothing there") {
    const std::string text = Refusal(directory / "absent", kFields);
    CHECK_THAT(text, ContainsSubstring(directory / "absent: "));
    CHECK_THAT(text, ContainsSubstring("found nothing of that name"));
    CheckNamesFormats(text);
  }
  SECTION("an empty name") { CheckNamesFormats(Refusal("", kFields)); }
  SECTION("a misspelt word") { CheckNamesFormats(Refusal("synthetik", kFields)); }
  SECTION("an empty directory") {
    const std::string text = Refusal(directory.path(), kFields);
    CHECK_THAT(text, ContainsSubstring("found an empty directory"));
    CheckNamesFormats(text);
  }
  SECTION("a file") {
    WriteFile(directory / "train-images-idx3-ubyte", "");
    CHECK_THAT(Refusal(directory / "train-images-idx3-ubyte", kFields),
               ContainsSubstring("found a file"));
  }
  SECTION("other files") {
    for (const char* name : {"f", "b", "d", "a", "e", "c", "Z"}) WriteFile(directory / name, "");
    const std::string text = Refusal(directory.path(), kFields);
    CHECK_THAT(text, ContainsSubstring("found a directory with Z, a, b, c, d and 2 more"));
    CheckNamesFormats(text);
  }
}

TEST_CASE("a directory called synthetic is reached by a path") {
  const TempDir directory;
  std::filesystem::create_directory(directory / "synthetic");
  CHECK_THAT(Refusal(directory / "synthetic", kFields), ContainsSubstring("an empty directory"));
}

}  // namespace
}  // namespace pd
