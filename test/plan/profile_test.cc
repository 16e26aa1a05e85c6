#include "base/error.h"
#include "plan/documents.h"
#include "plan/plan.h"
#include "support/catch.h"

namespace pd {
namespace {

void Refused(const std::string& from, const std::string& to, const std::string& message) {
  CAPTURE(from, to);
  CHECK_THROWS_WITH(ReadProfile(ParseText(With(ProfileText(), from, to))),
                    ContainsSubstring(message));
}

TEST_CASE("a profile is read, written and read back to the same bytes") {
  const Profile profile = ReadProfile(ParseText(ProfileText()));
  CHECK(profile.batch_size == 4);
  REQUIRE(profile.layers.size() == 4);
  CHECK(profile.layers[1].compute_ms() == 1.5 + 2.25 + 0.125);
  CHECK(profile.layers[1].stash_bytes == 0);
  CHECK_FALSE(profile.layers[0].stash_bytes.has_value());
  CHECK(profile.layers[1].stored_parameter_bytes == 128);
  CHECK(profile.layers[0].weight_bytes() == 0);
  CHECK(profile.layers[1].workspace_bytes == 96);
  CHECK_FALSE(profile.layers[0].workspace_bytes.has_value());
  const std::string written = WriteProfile(profile);
  CHECK(written.find("\"format\": \"pipedream.profile/1\"") < 10);
  CHECK(WriteProfile(ReadProfile(ParseText(written))) == written);
}

TEST_CASE("numbers of a profile survive writing exactly") {
  Profile profile = ReadProfile(ParseText(ProfileText()));
  for (const double value : {0.1, 1.0 / 3, 1e-300, 123456789.123456789, 5e-324}) {
    profile.layers[0].forward_ms = value;
    CHECK(ReadProfile(ParseText(WriteProfile(profile))).layers[0].forward_ms == value);
  }
}

TEST_CASE("a profile without model may leave inputs empty") {
  const std::string text = R"({"format": "pipedream.profile/1", "batch_size": 4, "layers": )" +
                           With(CostsText(), R"(["flat"])", "[]") + "}";
  const Profile profile = ReadProfile(ParseText(text));
  CHECK_FALSE(profile.model.has_value());
  CHECK(profile.layers[1].inputs.empty());
}

TEST_CASE("with a model, inputs left empty are the model's") {
  const auto profile = ReadProfile(ParseText(With(ProfileText(), R"(["fc1", "flat"])", "[]")));
  CHECK(profile.layers[2].inputs == std::vector<std::string>{"fc1", "flat"});
}

TEST_CASE("profiles that make no sense are refused with their place") {
  Refused("\"batch_size\": 4", "\"batch_size\": 0", "/batch_size: expected an integer from 1");
  Refused("\"batch_size\": 4", "\"batchsize\": 4", "did you mean \"batch_size\"?");
  Refused("\"forward_ms\": 1.5", "\"forward_ms\": -1.5",
          "/layers/1/forward_ms: expected a number from 0");
  Refused("\"forward_ms\": 1.5", "\"forward_ms\": 1e10", "/layers/1/forward_ms");
  Refused("\"forward_ms\": 1.5", "\"forward_ms\": \"1.5\"", "/layers/1/forward_ms");
  Refused("\"forward_ms\": 1.5", "\"forward_ms\": null", "/layers/1/forward_ms");
  Refused("\"forward_ms\": 1.5", "\"forward_ms\": 1e309", "test.json");
  Refused("\"forward_ms\": 1.5", "\"forward_ms\": NaN", "not JSON");
  Refused("\"parameter_bytes\": 80", "\"parameter_bytes\": 80.5", "/layers/1/parameter_bytes");
  Refused("\"parameter_bytes\": 80", "\"parameter_bytes\": 2000000000000000000", "parameter_bytes");
  Refused("\"parameter_bytes\": 80", "\"parameter_bytes\": 80, \"parameter_bytes\": 80",
          "duplicate key");
  Refused("\"name\": \"fc1\"", "\"name\": \"flat\"",
          "/layers/1/name: expected a name that no other layer has");
  Refused("\"name\": \"fc1\"", "\"name\": \"fc7\"",
          "/layers/1/name: expected \"fc1\", layer 1 of the model");
  Refused(R"(["flat"])", R"(["label"])", "/layers/1/inputs: expected the model's inputs");
  Refused("linear", "lineal", "/model/layers/1/type");
  Refused(R"("threads": 1, )", "", "/device: expected a key \"threads\"");
}

TEST_CASE("cycles and layers out of order are refused, with or without a model") {
  const std::string text =
      R"({"format": "pipedream.profile/1", "batch_size": 4, "layers": )" + CostsText() + "}";
  const auto refused = [&](const std::string& to, const std::string& message) {
    CHECK_THROWS_WITH(ReadProfile(ParseText(With(text, R"(["flat"])", to))),
                      ContainsSubstring(message));
  };
  refused(R"(["sum"])",
          "/layers/1/inputs/0: expected the name of a graph input or of an earlier layer, "
          "found \"sum\", which stands later");
  refused(R"(["fc1"])", "the layer itself");
  Refused(R"(["flat"])", R"(["sum"])", "which stands later");
}

TEST_CASE("a profile has the layers of its model, all of them") {
  const std::string text = ProfileText();
  const size_t begin = text.find(R"({"name": "loss", "inputs")");
  std::string shorter = text;
  shorter.erase(text.rfind(',', begin), text.find('}', begin) + 1 - text.rfind(',', begin));
  CHECK_THROWS_WITH(ReadProfile(ParseText(shorter)), ContainsSubstring("without \"loss\""));
}

}  // namespace
}  // namespace pd
