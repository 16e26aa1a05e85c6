#include "base/text.h"

#include "support/catch.h"

namespace pd {
namespace {

TEST_CASE("the width of a text is that on a terminal, not its bytes") {
  CHECK(DisplayWidth("") == 0);
  CHECK(DisplayWidth("conv1") == 5);
  CHECK(DisplayWidth("µ…Ω") == 3);
  CHECK(DisplayWidth("e\u0301") == 1);
  CHECK(DisplayWidth("畳み込み") == 8);
  CHECK(DisplayWidth("\U0001F600") == 2);
  CHECK(DisplayWidth("\xff\xc3") == 2);
}

TEST_CASE("characters that hide, or turn their surroundings, are shown by their numbers") {
  CHECK(Printable("conv1 µ…畳 \"\\") == "conv1 µ…畳 \"\\");
  CHECK(Printable("a\u202Eb") == "a\\u202eb");
  CHECK(Printable("\u2066\u2069\u200F\u061C\u200B\uFEFF\u2028") ==
        "\\u2066\\u2069\\u200f\\u061c\\u200b\\ufeff\\u2028");
  CHECK(Printable("a\nb\x1b[31m\x7f") == "a\\u000ab\\u001b[31m\\u007f");
  CHECK(Printable("\u0085") == "\\u0085");
  CHECK(Printable("\U000E0041") == "\\ue0041");
}

TEST_CASE("bytes that are no UTF-8 are shown as bytes") {
  CHECK(Printable("a\xff") == "a\\xff");
  CHECK(Printable("\xc3") == "\\xc3");
  CHECK(Printable("\xc0\xaf") == "\\xc0\\xaf");           // too long a form
  CHECK(Printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // half of a surrogate pair
  CHECK(Printable("\xe2\x80x") == "\\xe2\\x80x");
}

TEST_CASE("one is singular") {
  CHECK(Counted(0, "layer") == "0 layers");
  CHECK(Counted(1, "layer") == "1 layer");
  CHECK(Counted(2, "minibatch", "minibatches") == "2 minibatches");
}

}  // namespace
}  // namespace pd
