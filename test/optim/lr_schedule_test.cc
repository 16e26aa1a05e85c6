#include <string>

#include "base/error.h"
#include "optim/optim.h"
#include "support/catch.h"

namespace pd {
namespace {

LrSchedule Read(const std::string& text) {
  return LrSchedule::Read(JsonView::Parse(text, "config.json"));
}

std::string Complaint(const std::string& text) {
  try {
    Read(text);
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::kInvalidInput);
    CHECK(std::string(e.what()).find('\n') == std::string::npos);
    return e.what();
  }
  return "accepted";
}

TEST_CASE("constant keeps the base rate") {
  const LrSchedule schedule = Read(R"({"type": "constant"})");
  CHECK(schedule.At(0.05, 0, 10, 0.01) == 0.05);
  CHECK(schedule.At(0.05, 9.99, 10, 0.01) == 0.05);
  CHECK(LrSchedule{}.At(0.05, 3, 10, 0.01) == 0.05);
}

TEST_CASE("step multiplies by gamma every so many epochs") {
  const LrSchedule schedule = Read(R"({"type": "step", "epochs": 2, "gamma": 0.5})");
  CHECK(schedule.At(0.8, 0, 10, 0.1) == 0.8);
  CHECK(schedule.At(0.8, 1.9, 10, 0.1) == 0.8);
  CHECK(schedule.At(0.8, 2, 10, 0.1) == 0.4);
  CHECK(schedule.At(0.8, 3.9, 10, 0.1) == 0.4);
  CHECK(schedule.At(0.8, 4, 10, 0.1) == 0.2);
  CHECK(schedule.At(0.8, 9.9, 10, 0.1) == 0.05);
}

TEST_CASE("step without keys is a tenth every 30 epochs") {
  const LrSchedule schedule = Read(R"({"type": "step"})");
  CHECK(schedule.At(0.1, 29.999, 90, 0.001) == 0.1);
  CHECK(schedule.At(0.1, 30, 90, 0.001) == Approx(0.01));
  CHECK(schedule.At(0.1, 60, 90, 0.001) == Approx(0.001));
}

TEST_CASE("step changes at the minibatch that starts its epoch although fractions round") {
  const LrSchedule schedule = Read(R"({"type": "step", "epochs": 0.1, "gamma": 0.5})");
  REQUIRE(0.3 / 0.1 < 3);
  CHECK(schedule.At(1, 0.3, 10, 0.1) == 0.125);
  CHECK(schedule.At(1, 0.2999, 10, 0.0001) == 0.25);
}

TEST_CASE("polynomial goes from the base rate to the end rate") {
  const LrSchedule square = Read(R"({"type": "polynomial", "power": 2, "end": 0.1})");
  CHECK(square.At(0.5, 0, 10, 0.1) == Approx(0.5));
  CHECK(square.At(0.5, 5, 10, 0.1) == Approx(0.2));  // 0.1 + 0.4 · 0.25
  CHECK(square.At(0.5, 7.5, 10, 0.1) == Approx(0.125));
  CHECK(square.At(0.5, 10, 10, 0.1) == Approx(0.1));
  CHECK(square.At(0.5, 12, 10, 0.1) == Approx(0.1));
  const LrSchedule line = Read(R"({"type": "polynomial"})");
  CHECK(line.At(0.4, 2.5, 10, 0.1) == Approx(0.3));
  CHECK(line.At(0.4, 10, 10, 0.1) == 0);
}

TEST_CASE("warm-up rises in equal steps from base / minibatches to base") {
  const LrSchedule schedule = Read(R"({"type": "constant", "warmup_epochs": 2})");
  // 4 minibatches an epoch, 8 in the warm-up: base · 1/8, 2/8, … 8/8, then base.
  for (int i = 0; i < 8; ++i) {
    CHECK(schedule.At(0.8, i / 4.0, 10, 0.25) == Approx(0.1 * (i + 1)));
  }
  CHECK(schedule.At(0.8, 2, 10, 0.25) == 0.8);
  // A warm-up shorter than a minibatch does not overshoot.
  CHECK(Read(R"({"type": "constant", "warmup_epochs": 0.1})").At(0.8, 0, 10, 0.25) == 0.8);
}

TEST_CASE("warm-up shifts neither step nor polynomial") {
  const LrSchedule step =
      Read(R"({"type": "step", "epochs": 3, "gamma": 0.5, "warmup_epochs": 1})");
  CHECK(step.At(0.8, 0.5, 10, 0.25) == Approx(0.6));
  CHECK(step.At(0.8, 1, 10, 0.25) == 0.8);
  CHECK(step.At(0.8, 3, 10, 0.25) == 0.4);
  const LrSchedule line = Read(R"({"type": "polynomial", "warmup_epochs": 1})");
  CHECK(line.At(0.8, 0, 10, 0.25) == Approx(0.2));
  CHECK(line.At(0.8, 5, 10, 0.25) == Approx(0.4));
}

TEST_CASE("a misspelt type is refused with a suggestion") {
  const std::string text = Complaint(R"({"type": "stpe"})");
  CHECK_THAT(text, ContainsSubstring("config.json: /type: "));
  CHECK_THAT(text, ContainsSubstring("\"constant\", \"step\" or \"polynomial\""));
  CHECK_THAT(text, ContainsSubstring("did you mean \"step\"?"));
  CHECK_THAT(Complaint(R"({"type": "polinomial"})"), ContainsSubstring("\"polynomial\"?"));
  CHECK_THAT(Complaint(R"({"type": "quadratic-ish"})"), !ContainsSubstring("did you mean"));
}

TEST_CASE("a misspelt key and a key of another type are refused") {
  CHECK_THAT(Complaint(R"({"type": "step", "gama": 0.1})"), ContainsSubstring("\"gamma\"?"));
  CHECK_THAT(Complaint(R"({"type": "constant", "gamma": 0.1})"), ContainsSubstring("/gamma"));
  CHECK_THAT(Complaint(R"({"type": "polynomial", "epochs": 3})"), ContainsSubstring("/epochs"));
  CHECK_THAT(Complaint(R"({"type": "constant", "warmup_epoch": 1})"),
             ContainsSubstring("\"warmup_epochs\"?"));
}

TEST_CASE("wrong types and absurd numbers are refused with their pointer") {
  CHECK_THAT(Complaint(R"({"epochs": 2})"), ContainsSubstring("\"type\""));
  CHECK_THAT(Complaint(R"("step")"), ContainsSubstring("an object"));
  CHECK_THAT(Complaint(R"({"type": 3})"), ContainsSubstring("/type"));
  CHECK_THAT(Complaint(R"({"type": "step", "epochs": 0})"), ContainsSubstring("/epochs"));
  CHECK_THAT(Complaint(R"({"type": "step", "epochs": "2"})"), ContainsSubstring("/epochs"));
  CHECK_THAT(Complaint(R"({"type": "step", "gamma": -1})"), ContainsSubstring("/gamma"));
  CHECK_THAT(Complaint(R"({"type": "step", "gamma": null})"), ContainsSubstring("/gamma"));
  CHECK_THAT(Complaint(R"({"type": "polynomial", "end": -0.1})"), ContainsSubstring("/end"));
  CHECK_THAT(Complaint(R"({"type": "constant", "warmup_epochs": -1})"),
             ContainsSubstring("/warmup_epochs"));
}

}  // namespace
}  // namespace pd
