#include "stage/weights.h"

#include <algorithm>
#include <memory>
#include <string>

#include "backend/registry.h"
#include "base/error.h"
#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

// Wide enough for oneDNN to store its weights in blocks.
Model TheModel(const std::string& more = "") {
  const std::string text = R"({"format":"pipedream.model/1","name":"wide",
    "inputs":[{"name":"image","shape":[16,8,8]},{"name":"label","shape":[],"dtype":"i32"}],
    "layers":[
      {"name":"conv","type":"conv2d","inputs":["image"],"out_channels":32,"kernel":3},
      {"name":"bn","type":"batch_norm"},)" +
                           more + R"(
      {"name":"flat","type":"flatten"},
      {"name":"fc","type":"linear","out_features":4},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc","label"]}]})";
  return Model::Parse(JsonView::Parse(text, "model"));
}

uint64_t DigestOf(const Model& model, const char* kind, int64_t batch = 8) {
  const auto backend = MakeBackend(kind, 1);
  const ModelPlan plan(model, *backend, batch, 1);
  return WeightLayout(model, plan, MakeWholeCut(model).layers[0]).Digest();
}

TEST_CASE("weights that lie in memory alike have equal digests, whoever planned them") {
  const Model model = TheModel();
  CHECK(DigestOf(model, "ref") == DigestOf(TheModel(), "ref"));
  CHECK(DigestOf(model, "auto") == DigestOf(TheModel(), "auto"));
  CHECK(DigestOf(model, "ref") == DigestOf(model, "ref", 4));  // dense whatever the minibatch
  CHECK(DigestOf(model, "ref") != DigestOf(model, "ref64"));
  CHECK(DigestOf(model, "ref") !=
        DigestOf(TheModel(R"({"name":"conv2","type":"conv2d","out_channels":32,"kernel":1},)"),
                 "ref"));
}

#if defined(__x86_64__)
TEST_CASE("weights in oneDNN's blocks have another digest than dense ones") {
  const std::vector<std::string_view> kinds = BackendKinds();
  if (std::find(kinds.begin(), kinds.end(), "cpu") == kinds.end()) return;
  CHECK(DigestOf(TheModel(), "cpu") != DigestOf(TheModel(), "ref"));
}
#endif

TEST_CASE("what a device cannot do is refused with model and layer") {
  const auto timed = MakeBackendOrTimed("timed", {});  // it has layers of its own only
  const Model model = TheModel();
  CHECK_THAT(ErrorOf([&] { ModelPlan(model, *timed, 8, 1); }),
             ContainsSubstring("model \"wide\": layer \"conv\": "));
}

}  // namespace
}  // namespace pd
