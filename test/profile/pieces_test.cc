// Models that do not fit are measured in pieces.
#include "profile/profiler.h"
#include "profile/shipped.h"
#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

ProfileOptions OneStep() {
  ProfileOptions options;
  options.batch_size = 2;
  options.minibatches = 1;
  options.warmup = 0;
  return options;
}

TEST_CASE("a model in pieces has the same profile as whole, but for the times") {
  const auto backend = MakeBackend("auto", 1);
  for (const char* name : {"lenet", "mini", "resnet", "inception"}) {
    CAPTURE(name);
    const Model model = LoadShipped(name);
    const ProfileResult whole = MeasureProfile(model, *backend, OneStep());
    REQUIRE(whole.pieces.size() == 1);
    REQUIRE(whole.profile.whole_ms);

    ProfileOptions options = OneStep();
    options.memory_bytes = whole.memory_bytes - 1;
    std::vector<size_t> steps;
    options.progress = [&](const ProfileProgress& progress) {
      CHECK(progress.piece == steps.size());
      steps.push_back(progress.pieces);
    };
    const ProfileResult pieces = MeasureProfile(model, *backend, options);
    CHECK(pieces.memory_bytes <= options.memory_bytes);
    CHECK(pieces.pieces.size() > 1);
    CHECK(steps == std::vector<size_t>(pieces.pieces.size(), pieces.pieces.size()));
    int next = 0;
    for (const ProfileResult::Piece& piece : pieces.pieces) {
      CHECK(piece.begin == next);
      CHECK(piece.end > piece.begin);
      next = piece.end;
    }
    CHECK(next == model.num_layers());
    CHECK_FALSE(pieces.profile.whole_ms);
    CHECK(pieces.untimed_ms > 0);
    for (const LayerCost& layer : pieces.profile.layers) CHECK(layer.forward_ms > 0);
    CHECK(WriteProfile(WithoutTimes(pieces.profile)) == WriteProfile(WithoutTimes(whole.profile)));
  }
}

TEST_CASE("a layer that does not fit alone is refused by name, with need and limit") {
  const auto backend = MakeBackend("ref", 1);
  ProfileOptions options = OneStep();
  options.memory_bytes = 1000;
  const std::string refusal =
      ErrorOf([&] { MeasureProfile(LoadShipped("lenet"), *backend, options); });
  CHECK_THAT(refusal, ContainsSubstring("layer \"conv1\" alone needs") &&
                          ContainsSubstring("batch size 2") && ContainsSubstring("1.00 kB"));
}

}  // namespace
}  // namespace pd
